"""Whatever the description allows, and what it does not, is answered as the description says: by every role, and never
with a defect.

Requests are drawn from the OpenAPI description by schemathesis and sent by everybody; each answer is held against the
description: its status, its media type and its schema.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
import schemathesis
from fastapi import FastAPI
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import Case, GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from service.control.observe import Observer
from service.control.scheduling import Outcome
from tests.api_server import TOKENS, Server, start_server

NOBODY = None
EVERYBODY = (*TOKENS, NOBODY)
EXAMPLES = 6
"""For each operation, sent by everybody."""
CHECKS = [
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    response_headers_conformance,
]
UNREADY = {"/readyz"}
"""503 is what it is there for."""
ENDLESS = {"/v1/events"}
"""A stream does not end by itself; tests of its own look at it."""


@pytest.fixture(scope="module")
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    with asyncio.Runner() as runner:
        yield runner.get_loop()


@pytest.fixture(scope="module")
def server(app: FastAPI, loop: asyncio.AbstractEventLoop) -> Iterator[Server]:
    server = loop.run_until_complete(start_server(app, rate_limit_per_s=0.0, failed_logins_per_s=0.0))
    yield server
    server.world.engine.dispose()


def sent(case: Case, server: Server, name: str | None) -> Coroutine[Any, Any, httpx.Response]:
    """The case as a request of somebody's."""
    kwargs = case.as_transport_kwargs(base_url="http://bace")
    kwargs.pop("cookies", None)
    body = {key: kwargs[key] for key in ("json", "data", "files") if kwargs.get(key) is not None}
    if isinstance(body.get("data"), str | bytes):
        body = {"content": body["data"]}
    headers = {key: str(value) for key, value in (kwargs.get("headers") or {}).items()}
    headers.pop("Authorization", None)
    query = {key: value for key, value in (kwargs.get("params") or {}).items() if key != "follow"}

    async def send() -> httpx.Response:
        async with server.client(name, raise_app_exceptions=False) as client:
            return await client.request(
                kwargs["method"], kwargs["url"], headers=headers, params=query, **body
            )

    return send()


@dataclass
class Seen:
    """What was asked and answered."""

    asked: int = 0
    statuses: set[int] = field(default_factory=set)


def test_every_operation_answers_everybody_as_it_is_described(
    app: FastAPI, server: Server, loop: asyncio.AbstractEventLoop
) -> None:
    schema, seen = schemathesis.openapi.from_dict(app.openapi()), Seen()
    for result in schema.get_all_operations():
        operation = result.ok()
        if operation.path not in ENDLESS:
            ask_everybody(operation, server, loop, seen)
    assert seen.asked > 1000
    assert {200, 401, 403, 404, 422} <= seen.statuses
    # Whatever was stored on the way, planning and watching go on.
    assert loop.run_until_complete(server.world.plan()) in (Outcome.APPLIED, Outcome.EMPTY)
    loop.run_until_complete(Observer(server.world.services).observe())


def ask_everybody(operation: Any, server: Server, loop: asyncio.AbstractEventLoop, seen: Seen) -> None:
    """Draws requests of one operation, and holds the answers to everybody against its description."""
    kinds = [
        operation.as_strategy(generation_mode=mode)
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)
    ]
    checks = CHECKS if operation.path in UNREADY else [not_a_server_error, *CHECKS]

    @settings(
        max_examples=EXAMPLES,
        database=None,
        deadline=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=st.one_of(kinds))
    def ask(case: Case) -> None:
        for name in EVERYBODY:
            answer = loop.run_until_complete(sent(case, server, name))
            seen.statuses.add(answer.status_code)
            seen.asked += 1
            case.validate_response(answer, checks=checks)

    ask()
