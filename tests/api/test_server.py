"""`bace server` refuses what would be unsafe, writes the first token for its owner alone, and logs no secret."""

from __future__ import annotations

import asyncio
import json
import logging as standard_logging
import socket
import threading
from pathlib import Path

import pytest
import structlog
from pydantic import ValidationError
from sqlalchemy import Engine

from scheduler.errors import InvalidValueError
from service import logging, server
from service.db import migrate
from service.db.engine import Mode, make_engine
from service.db.repositories import access
from service.db.transaction import transact
from service.server import check_listening, check_port, is_loopback
from service.services import Services
from service.settings import Settings
from service.wiring import assemble


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    engine = make_engine(f"sqlite:///{tmp_path / 'bace.db'}")
    migrate.upgrade(engine)
    return engine


@pytest.mark.parametrize("host", ["0.0.0.0", "10.1.2.3", "::", "example.org"])  # noqa: S104 - what is refused
def test_beyond_loopback_it_wants_tls_and_a_token(tmp_path: Path, engine: Engine, host: str) -> None:
    assert not is_loopback(host)
    with pytest.raises(InvalidValueError, match="BACE_TLS_TERMINATED"):
        check_listening(Settings(home=tmp_path, host=host), engine)
    behind_tls = Settings(home=tmp_path, host=host, tls_terminated=True)
    with pytest.raises(InvalidValueError, match="no token"):
        check_listening(behind_tls, engine)
    assembly = assemble(Settings(home=tmp_path))
    server._first_token(Settings(home=tmp_path), assembly)
    check_listening(behind_tls, engine)
    assembly.close()
    engine.dispose()


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost"])
def test_on_loopback_it_just_begins(tmp_path: Path, engine: Engine, host: str) -> None:
    assert is_loopback(host)
    check_listening(Settings(home=tmp_path, host=host), engine)
    engine.dispose()


def test_the_first_token_is_made_once_and_lies_where_only_its_owner_reads_it(
    tmp_path: Path, engine: Engine
) -> None:
    settings = Settings(home=tmp_path)
    assembly = assemble(settings)
    server._first_token(settings, assembly)
    path = tmp_path / "admin-token"
    assert path.stat().st_mode & 0o777 == 0o600
    text = path.read_text().strip()
    assert text.startswith("bace_")
    assert len(text) == len("bace_") + 43
    server._first_token(settings, assembly)
    assert path.read_text().strip() == text
    count, _ = transact(engine, Mode.READ, lambda session: access.usable_tokens(session, 0.0))
    assert count == 1
    assembly.close()
    engine.dispose()


def test_a_policy_nobody_knows_is_refused_before_anything_is_touched(tmp_path: Path) -> None:
    with pytest.raises(InvalidValueError, match="BACE_POLICY: 'magic' is not valid"):
        server.serve(Settings(home=tmp_path / "untouched", policy="magic"))
    assert not (tmp_path / "untouched").exists()


@pytest.mark.parametrize(
    "wrong",
    [
        {"node_lost_after_s": 100.0},
        {"lease_s": 3.0, "heartbeat_interval_s": 2.0},
        {"max_stop_grace_s": 600.0},
        {"plan_interval_s": 0.0},
        {"port": 70_000},
    ],
)
def test_settings_that_could_run_two_generations_at_once_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValidationError) as refused:
        Settings(**wrong)  # type: ignore[arg-type]
    assert next(iter(wrong)).upper() in str(refused.value).upper()


def test_the_log_is_json_without_secrets(capsys: pytest.CaptureFixture[str]) -> None:
    token = "bace_" + "x" * 43
    handlers, level = standard_logging.root.handlers[:], standard_logging.root.level
    try:
        logging.configure()
        structlog.get_logger("test").info(
            "told",
            admin_token=token,
            text=f"with {token} in it",
            url="postgresql://me:hunter2@db/x",
            token_id="t-1",
        )
        standard_logging.getLogger("library").warning("sent %s", token)
        lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    finally:
        standard_logging.root.handlers[:] = handlers
        standard_logging.root.setLevel(level)
        structlog.reset_defaults()
    assert [line["event"] for line in lines] == ["told", "sent ***"]
    assert lines[0]["token_id"] == "t-1"
    assert not any(secret in json.dumps(lines) for secret in (token, "hunter2"))


def test_what_a_restart_costs_here_is_what_is_planned_with(tmp_path: Path, engine: Engine) -> None:
    assembly = assemble(Settings(home=tmp_path, restart_fixed_s=90.0, storage_gbps_per_gpu=2.5))
    reader = assembly.services.snapshots
    planned_on, _ = transact(engine, Mode.READ, lambda session: reader.load(session, 0.0))
    assert planned_on.cluster.restart.fixed_s == 90.0
    assert planned_on.cluster.restart.storage_bps_per_gpu == 2.5e9
    assembly.close()
    engine.dispose()


def test_jobs_are_planned_while_what_clients_ask_takes_every_thread(
    tmp_path: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A comparison of schedules, a dry run or an explanation of a large job takes seconds, and there may be many."""

    class Plane:
        def __init__(self, services: Services) -> None:
            self.compute = services.compute

        async def run(self) -> None:
            await self.compute.run(int)
            planned.set()
            await asyncio.Event().wait()

    async def live() -> None:
        most = assembly.services.settings.max_planner_questions
        asked = [asyncio.ensure_future(assembly.services.compute.run(answer.wait)) for _ in range(most)]
        try:
            async with assembly.app.router.lifespan_context(assembly.app):
                await asyncio.wait_for(planned.wait(), timeout=20)
        finally:
            answer.set()
            await asyncio.gather(*asked)

    monkeypatch.setattr("service.wiring.ControlPlane", Plane)
    assembly, planned, answer = assemble(Settings(home=tmp_path)), asyncio.Event(), threading.Event()
    asyncio.run(live())
    assert planned.is_set()
    assembly.close()
    engine.dispose()


def test_a_port_that_another_program_has_is_told_before_anything_starts() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(
            InvalidValueError,
            match=f"BACE_PORT: '127.0.0.1:{port}' is not valid: expected .* a port that is free",
        ):
            check_port("127.0.0.1", port)
    check_port("127.0.0.1", port)
    with pytest.raises(InvalidValueError, match=r"192\.0\.2\.1"):
        check_port("192.0.2.1", port)
