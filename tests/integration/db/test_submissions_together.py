"""Submissions that come in together are stored by one transaction, and each as if it had come alone."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, event, select

from service import jobs
from service.access import Principal, Role
from service.adapters.clock import SystemClock
from service.adapters.compute import InlineCompute
from service.adapters.database import ThreadPoolDb
from service.adapters.ids import UlidIds
from service.adapters.local_bus import LocalBus
from service.db.records import QuotaRecord
from service.db.repositories import access, quotas
from service.db.tables import EventRow, IdempotencyRow, JobRow
from service.errors import IdempotencyMismatchError, InvalidInputError
from service.jobs import Submitted
from service.services import Services
from service.settings import Settings
from tests.control_world import job_document

ADMIN = Principal("token-admin", "admin", Role.ADMIN, "*", "0" * 64, "account-admin", "admin")
PATIENCE_S = 20


@pytest.fixture
async def services(engine: Engine, tmp_path: Path) -> AsyncIterator[Services]:
    bus = LocalBus()
    db = ThreadPoolDb(engine, bus)
    yield Services(Settings(home=tmp_path), SystemClock(), UlidIds(), db, bus, InlineCompute())
    db.close()


async def _all_at_once(
    services: Services, *asked: tuple[dict[str, Any], str | None]
) -> list[Submitted | BaseException]:
    """They come while the writer is busy: what waits then is one round."""
    gate = threading.Event()
    slow = asyncio.ensure_future(services.db.run(lambda _: gate.wait(PATIENCE_S)))
    await asyncio.sleep(0)
    waiting = [asyncio.ensure_future(jobs.submit(services, ADMIN, *each)) for each in asked]
    await asyncio.sleep(0)
    gate.set()
    assert await slow
    return await asyncio.gather(*waiting, return_exceptions=True)


async def test_each_is_stored_once_and_the_others_are_told_why(services: Services, engine: Engine) -> None:
    def small(session: Any) -> None:
        access.ensure_project(session, "small", 0.0)
        quotas.change(session, "small", QuotaRecord(2, None))

    await services.db.run(small)
    answers = await _all_at_once(
        services,
        (job_document(name="plain"), None),
        (job_document(name="keyed"), "key"),
        (job_document(name="keyed"), "key"),
        (job_document(name="other"), "key"),
        (job_document(name="nowhere", placement={"home": "atlantis"}), "lost"),
        (job_document(name="large", project="small"), "key"),
        (job_document(name="new", project="brand-new"), None),
    )
    plain, keyed, again, mismatch, nowhere, large, new = answers
    assert isinstance(mismatch, IdempotencyMismatchError)
    assert isinstance(nowhere, InvalidInputError)
    assert isinstance(keyed, Submitted)
    assert isinstance(again, Submitted)
    assert {keyed.replayed, again.replayed} == {False, True}
    assert keyed.view.job.job_id == again.view.job.job_id
    stored = {}
    for answer in (plain, keyed, large, new):
        assert isinstance(answer, Submitted)
        stored[answer.view.job.job_id] = answer.view.job
    assert [job.reasons[0]["code"] for job in stored.values()] == [
        "PlanPending",
        "PlanPending",
        "QuotaTooSmall",
        "PlanPending",
    ]
    with engine.connect() as connection:
        rows = {row.job_id: row for row in connection.execute(select(JobRow.__table__))}
        born = list(connection.execute(select(EventRow.object_id, EventRow.data).order_by(EventRow.seq)))
        keys = {tuple(row) for row in connection.execute(select(IdempotencyRow.project, IdempotencyRow.key))}
    assert {job_id: (row.name, row.reasons) for job_id, row in rows.items()} == {
        job_id: (job.name, job.reasons) for job_id, job in stored.items()
    }
    assert {object_id: data["name"] for object_id, data in born} == {
        job_id: job.name for job_id, job in stored.items()
    }
    assert len(born) == len(stored), "the birth of each is told once"
    assert keys == {("nlp", "key"), ("small", "key")}


async def test_many_are_a_few_statements(services: Services, engine: Engine) -> None:
    statements: list[str] = []
    event.listen(engine, "before_cursor_execute", lambda *told: statements.append(told[2]))
    answers = await _all_at_once(
        services, *((job_document(name=f"job-{number}"), f"key-{number}") for number in range(50))
    )
    assert all(isinstance(answer, Submitted) for answer in answers)
    assert len(statements) < 25, "each of them had statements of its own"


async def test_one_that_cannot_be_stored_keeps_none_of_the_others_out(services: Services) -> None:
    first = await jobs.submit(services, ADMIN, job_document(name="first"), None)

    class OnceTaken(UlidIds):
        """The second id that it gives is taken already."""

        given = 0

        def new(self, prefix: str) -> str:
            self.given += 1
            return first.view.job.job_id if self.given == 2 else super().new(prefix)

    told = await _all_at_once(
        replace(services, ids=OnceTaken()),
        *((job_document(name=f"job-{number}"), None) for number in range(5)),
    )
    assert [isinstance(answer, Submitted) for answer in told] == [True, False, True, True, True]
