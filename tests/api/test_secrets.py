"""A secret that goes in comes out nowhere: not in answers, logs, events, rows, metrics or problem documents."""

from __future__ import annotations

import io
import json
import logging as standard_logging
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog
from sqlalchemy import select
from sqlalchemy.orm import Session

from service import logging
from service.api.access import ACCESS
from service.bookkeeping import Bookkeeping
from service.cli.local import AgentPlan, LocalServer
from service.db.tables import Base
from tests.api_server import TOKENS, Server
from tests.control_world import job_document

STREAMS = {"/v1/events"}
PASSWORD = "hunter2-canary"
PLANTED = "bace_" + "Canary0123456789" * 2 + "abcdefghijk"
"""A token of no server, as somebody pastes it into the wrong place."""


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Iterator[io.StringIO]:
    """The log as `bace server` writes it, readable to the test."""
    written = io.StringIO()
    handlers, level = standard_logging.root.handlers[:], standard_logging.root.level
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", written)
        logging.configure()
    standard_logging.getLogger("httpx").setLevel(standard_logging.WARNING)  # the test's own client
    yield written
    standard_logging.getLogger("httpx").setLevel(standard_logging.NOTSET)
    standard_logging.root.handlers[:] = handlers
    standard_logging.root.setLevel(level)
    structlog.reset_defaults()


async def test_a_canary_through_the_whole_api_is_seen_nowhere_again(
    server: Server, log: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    outputs: list[str] = []
    secrets = dict(server.tokens)
    async with server.client() as admin:
        made = (await admin.post("/v1/tokens", json={"name": "canary", "role": "viewer"})).json()
        rotated = (await admin.post(f"/v1/tokens/{made['token_id']}/rotate", json={})).json()
        secrets |= {"made": made["token"], "rotated": rotated["token"], "planted": PLANTED}
    server.tokens |= {"made": made["token"], "rotated": rotated["token"]}
    headers = {"X-Request-Id": PLANTED[:60], "Idempotency-Key": PLANTED}

    for name in (*TOKENS, "made", "rotated", None):
        async with server.client(name, raise_app_exceptions=False) as client:
            for method, path in ACCESS:
                if path in STREAMS:
                    continue
                for segment in ("x", PLANTED):
                    address = path.replace("{", "").replace("}", "").replace("_id", segment)
                    answer = await client.request(method, address, params={"project": "nlp"})
                    outputs.append(answer.text)
            wrong = await client.get("/v1/jobs", headers={"Authorization": f"Basic {PLANTED}"})
            unknown = await client.get("/v1/jobs", headers={"Authorization": f"Bearer {PLANTED}"})
            missing = await client.get(f"/{PLANTED}", headers=headers)
            outputs += [wrong.text, unknown.text, missing.text]
    async with server.client("nlp", raise_app_exceptions=False) as nlp:
        job = job_document(run={"command": ["true"], "secrets": {"HF_TOKEN": "env:BACE_SECRET_HF"}})
        submitted = await nlp.post("/v1/jobs", json=job)
        assert submitted.status_code == 201, submitted.text
        outputs.append(submitted.text)
        refused = await nlp.post("/v1/jobs", json={**job, "run": {"secrets": {"HF_TOKEN": PASSWORD}}})
        assert refused.status_code == 422
        outputs.append(refused.text)

        async def broken(_: Any) -> Any:
            raise RuntimeError(f"cannot reach postgresql://bace:{PASSWORD}@db/bace with Bearer {PLANTED}")

        monkeypatch.setattr(type(server.world.services.db), "read", lambda _self, work: broken(work))
        defect = await nlp.get("/v1/regions")
        assert defect.status_code == 500
        outputs.append(defect.text)
        monkeypatch.undo()

    await Bookkeeping(server.world.services, server.app.state.authenticator).write()
    with Session(server.world.engine) as session:
        for table in Base.metadata.tables.values():
            outputs += [repr(tuple(row)) for row in session.execute(select(table))]
    outputs += [json.dumps(event.data) for event in await server.world.events()]
    outputs.append(server.world.services.metrics.exposition().decode())
    outputs.append(repr(server.world.services.settings))
    assert "RuntimeError" in log.getvalue(), "the log was looked at"
    assert '"event": "request"' in log.getvalue()
    outputs.append(log.getvalue())

    everything = "\n".join(outputs)
    found = {
        name: everything[max(0, everything.index(text) - 120) : everything.index(text)]
        for name, text in {**secrets, "password": PASSWORD}.items()
        if text in everything
    }
    assert found == {}


def test_a_started_agent_has_its_token_in_its_environment_and_not_in_the_list_of_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[tuple[list[str], dict[str, str]]] = []

    class Quiet:
        def start(
            self, _name: str, arguments: list[str], environment: dict[str, str], _within: object
        ) -> None:
            started.append((list(arguments), dict(environment)))

    class Answers:
        def __enter__(self) -> Answers:
            return self

        def __exit__(self, *_: object) -> None: ...

        def post(self, *_: object) -> dict[str, str]:
            return {"token": PLANTED}

    monkeypatch.setattr(LocalServer, "api", lambda _self: Answers())
    local = LocalServer(Quiet(), "http://127.0.0.1:1", "bace_admin", tmp_path)  # type: ignore[arg-type]
    local.start_agents([AgentPlan("n1", "eu", ["--cpu-slots", "1"])], {})
    [(arguments, environment)] = started
    assert not any(secret in " ".join(arguments) for secret in (PLANTED, "bace_admin"))
    assert environment["BACE_TOKEN"] == PLANTED
