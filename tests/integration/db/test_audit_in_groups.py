"""Changes that share one commit keep their audit rows apart: each row tells of its own change, and of no other."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
from sqlalchemy import Engine, select
from sqlalchemy.orm import Session

from service import tokens
from service.adapters.clock import SystemClock
from service.adapters.compute import InlineCompute
from service.adapters.database import ThreadPoolDb
from service.adapters.ids import UlidIds
from service.adapters.local_bus import LocalBus
from service.app import create_app
from service.db.tables import AuditRow, JobRow
from service.services import Services
from service.settings import Settings
from tests.control_world import job_document

JOBS = 20


async def test_of_many_submissions_at_once_each_has_its_row_and_what_was_refused_has_none(
    engine: Engine, tmp_path: Path
) -> None:
    bus = LocalBus()
    db = ThreadPoolDb(engine, bus)
    services = Services(Settings(home=tmp_path), SystemClock(), UlidIds(), db, bus, InlineCompute())
    made = await tokens.bootstrap(services)
    assert made is not None
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(create_app(services)),
        base_url="http://bace",
        headers={"Authorization": f"Bearer {made.text}"},
    ) as client:

        async def submit(number: int) -> httpx.Response:
            # Of every ten the last takes the key of the first, with another body: it is refused.
            key = f"key-{number - 9 if number % 10 == 9 else number}"
            body = job_document(name=f"job-{number}")
            headers = {"Idempotency-Key": key, "X-Request-Id": f"trace-{number}"}
            return await client.post("/v1/jobs", json=body, headers=headers)

        first = [await submit(number) for number in range(0, JOBS, 10)]
        rest = await asyncio.gather(*(submit(number) for number in range(JOBS) if number % 10))
    answers = [*first, *rest]
    accepted = [answer for answer in answers if answer.status_code == 201]
    assert [answer.status_code for answer in answers].count(422) == JOBS // 10
    assert len(accepted) == JOBS - JOBS // 10
    with Session(engine) as session:
        jobs = set(session.scalars(select(JobRow.job_id)))
        rows = list(session.scalars(select(AuditRow)))
    assert {row.object_id for row in rows} == jobs
    assert {row.trace_id: row.object_id for row in rows} == {
        answer.headers["X-Request-Id"]: answer.json()["job_id"] for answer in accepted
    }
    assert len(rows) == len(accepted)
    assert await services.audit.write(db) == JOBS // 10, (
        "the refused ones are told apart, and wait to be stored"
    )
    db.close()
