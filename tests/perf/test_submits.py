"""Submits per second over HTTP, beside a bare FastAPI route that inserts one row through SQLAlchemy the same way."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from fastapi import FastAPI, Request
from sqlalchemy import Engine, insert, text
from starlette.types import Message

from service import tokens
from service.adapters.clock import SystemClock
from service.adapters.compute import InlineCompute
from service.adapters.database import ThreadPoolDb
from service.adapters.ids import UlidIds
from service.adapters.local_bus import LocalBus
from service.app import create_app
from service.db import migrate
from service.db.engine import make_engine
from service.db.tables import ProjectRow
from service.services import Services
from service.settings import Settings
from tests.control_world import job_document

pytestmark = pytest.mark.perf

SECONDS = 3.0
CLIENTS = 8
BODY = json.dumps(job_document()).encode()
Call = Callable[[], Awaitable[int]]


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Engine:
    on_file = f"sqlite:///{tmp_path / 'bace.db'}"
    url = on_file if request.param == "sqlite" else request.getfixturevalue("postgres_url")
    engine = make_engine(url)
    migrate.upgrade(engine)
    return engine


async def test_submits_per_second_beside_a_bare_insert(engine: Engine, tmp_path: Path) -> None:
    bus = LocalBus()
    db = ThreadPoolDb(engine, bus)
    services = Services(Settings(home=tmp_path), SystemClock(), UlidIds(), db, bus, InlineCompute())
    token = (await tokens.bootstrap(services)) or pytest.fail("no token")
    bare = await _rate(_caller(_bare(db), "/rows", {}))
    ours = await _rate(_caller(create_app(services), "/v1/jobs", {"authorization": f"Bearer {token.text}"}))
    keyed = await _rate(
        _caller(create_app(services), "/v1/jobs", {"authorization": f"Bearer {token.text}"}, with_keys=True)
    )
    with engine.connect() as connection:
        stored = connection.execute(text("SELECT count(*) FROM jobs")).scalar()
    db.close()
    print(
        f"\n{engine.dialect.name}: {ours:.0f} submits/s, {keyed:.0f} with an Idempotency-Key; a bare FastAPI + "
        f"SQLAlchemy insert {bare:.0f}/s in the same run ({ours / bare:.2f} of it); {CLIENTS} clients, durable commits"
    )
    assert stored
    assert ours > 0.1 * bare, "authentication, parsing a job and its history cost more than they may"


def _bare(db: ThreadPoolDb) -> FastAPI:
    app, ids = FastAPI(), UlidIds()

    @app.post("/rows", status_code=201)
    async def add(request: Request) -> dict[str, str]:
        await request.json()
        name = ids.new("row")
        await db.run(lambda s: s.execute(insert(ProjectRow).values(project=name, created_at_s=0.0)).rowcount)
        return {"row": name}

    return app


def _caller(app: FastAPI, path: str, headers: dict[str, str], *, with_keys: bool = False) -> Call:
    """A function that posts the job straight to the application: no client library takes part in the figure."""
    ids = UlidIds()

    async def call() -> int:
        sent = {"content-type": "application/json", **headers}
        if with_keys:
            sent["idempotency-key"] = ids.new("key")
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": "POST",
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "root_path": "",
            "headers": [(name.encode(), value.encode()) for name, value in sent.items()],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 80),
        }
        status = 0

        async def receive() -> Message:
            return {"type": "http.request", "body": BODY, "more_body": False}

        async def send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = int(message["status"])

        await app(scope, receive, send)
        return status

    return call


async def _rate(call: Call) -> float:
    """Answered calls a second of several clients side by side."""
    assert await call() == 201
    begin_s = time.perf_counter()
    end_s = begin_s + SECONDS

    async def client() -> int:
        done = 0
        while time.perf_counter() < end_s:
            assert await call() == 201
            done += 1
        return done

    done = await asyncio.gather(*(client() for _ in range(CLIENTS)))
    return sum(done) / (time.perf_counter() - begin_s)
