"""A long history: many jobs that have ended, with what they ran on, reported, cost, and everything that happened."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median
from typing import Any

from sqlalchemy import Engine, insert, text

from scheduler.job import Schedule
from scheduler.placement import Placement, Segment
from scheduler.spec.job import parse_job
from service import placements
from service.accounts import make_administrator
from service.db.engine import Mode
from service.db.repositories import access
from service.db.repositories.step_series import RECENT_STEPS
from service.db.session import Session
from service.db.tables import (
    AllocationRow,
    Base,
    EventRow,
    JobRow,
    JobSpendingRow,
    LedgerRow,
    StepRow,
    StepSeriesRow,
)
from service.db.transaction import transact
from tests.control_world import job_document

START_S = 1_700_000_000.0
EVERY_S = 60.0
STEPS_OF_NEW, STEPS_OF_OLD = 60, 3
NEW = 2000
"""So many of the newest have their whole series; those before a few steps, for the sake of the test's own time."""
ROWS_AT_ONCE = 20_000
PLACEMENT = placements.to_document(
    Placement(
        (Segment("eu-north", "cpu-slot", stages=3, gpus_per_stage=1),),
        (),
        Schedule.ONE_F_ONE_B,
        window=(3, 2, 1),
    )
)


def fill(engine: Engine, jobs: int) -> None:
    """So many succeeded jobs, the newest last, into a database of the newest schema."""
    transact(engine, Mode.WRITE, _make_project)
    spec = parse_job(job_document()).completed()
    for table, rows in (
        (JobRow, (job_row(number, spec) for number in range(jobs))),
        (AllocationRow, (allocation_row(number) for number in range(jobs))),
        (StepRow, (row for number in range(jobs) for row in _steps(number, jobs))),
        (StepSeriesRow, (_series(number, jobs) for number in range(jobs))),
        (LedgerRow, (row for number in range(jobs) for row in _bills(number))),
        (JobSpendingRow, (row for number in range(jobs) for row in _spent(number))),
        (EventRow, (row for number in range(jobs) for row in _events(number))),
    ):
        _store(engine, table, rows)
    if engine.dialect.name == "postgresql":
        with engine.begin() as connection:  # as its own daemon has done long before so much is stored
            connection.execute(text("ANALYZE"))


def _make_project(session: Session) -> None:
    make_administrator(session, "account-history", START_S, "test")
    access.ensure_project(session, "nlp", START_S)


def _store(engine: Engine, table: type[Base], rows: Iterator[dict[str, Any]]) -> None:
    part: list[dict[str, Any]] = []
    with engine.begin() as connection:
        for row in rows:
            part.append(row)
            if len(part) == ROWS_AT_ONCE:
                connection.execute(insert(table.__table__), part)  # type: ignore[arg-type]  # it is a Table
                part = []
        if part:
            connection.execute(insert(table.__table__), part)  # type: ignore[arg-type]


def history_id(prefix: str, number: int) -> str:
    """Ids in the order of their numbers."""
    return f"{prefix}-{number:026d}"


def _at(number: int) -> float:
    return START_S + EVERY_S * number


def job_row(number: int, spec: dict[str, Any]) -> dict[str, Any]:
    """A job that has succeeded."""
    return {
        "job_id": history_id("job", number),
        "project": "nlp",
        "name": f"job-{number}",
        "submitted_by": "token-history",
        "spec": spec,
        "state": "succeeded",
        "priority": 0,
        "submitted_at_s": _at(number),
        "first_started_at_s": _at(number) + 5,
        "finished_at_s": _at(number) + 50,
        "declared_steps": STEPS_OF_NEW,
        "reported_steps": STEPS_OF_NEW,
        "checkpoint_step": 0,
        "checkpoint_uri": None,
        "checkpoint_regions": [],
        "generation": 1,
        "retries": 0,
        "not_before_s": 0.0,
        "cancel_requested": False,
        "stop_cause": None,
        "reasons": [],
        "queue_position": None,
        "version": 5,
    }


def allocation_row(number: int) -> dict[str, Any]:
    """What it ran on."""
    return {
        "allocation_id": history_id("alloc", number),
        "project": "nlp",
        "job_id": history_id("job", number),
        "generation": 1,
        "state": "ended",
        "placement": PLACEMENT,
        "why": "it fits",
        "transfers": [],
        "predicted_iteration_s": 1.0,
        "first_step": 1,
        "master_address": "10.0.0.1",
        "master_port": 29500,
        "epoch": 1,
        "created_at_s": _at(number) + 5,
        "running_at_s": _at(number) + 6,
        "ended_at_s": _at(number) + 50,
        "billed_until_s": _at(number) + 50,
        "stop_cause": None,
        "stop_why": None,
        "version": 3,
    }


def _steps(number: int, jobs: int) -> Iterator[dict[str, Any]]:
    count = STEPS_OF_NEW if number >= jobs - NEW else STEPS_OF_OLD
    for step in range(STEPS_OF_NEW - count + 1, STEPS_OF_NEW + 1):
        yield {
            "job_id": history_id("job", number),
            "step": step,
            "project": "nlp",
            "generation": 1,
            "loss": 5.0 / step,
            "step_time_s": 0.7,
            "tokens": 128,
            "at_s": _at(number) + 6 + step / 2,
        }


def _series(number: int, jobs: int) -> dict[str, Any]:
    """Of its steps."""
    steps = list(_steps(number, jobs))
    recent_s = [step["step_time_s"] for step in steps[1:]][-RECENT_STEPS:]
    return {
        "job_id": history_id("job", number),
        "project": "nlp",
        "first_step": steps[0]["step"],
        "first_loss": steps[0]["loss"],
        "generation": 1,
        "from_step": steps[0]["step"],
        "last_step": steps[-1]["step"],
        "last_loss": steps[-1]["loss"],
        "last_grad_norm": None,
        "iteration_s": median(recent_s),
        "recent_s": recent_s,
    }


def _spent(number: int) -> Iterator[dict[str, Any]]:
    """The sums of its bills."""
    for bill in _bills(number):
        yield {
            name: bill[name] for name in ("job_id", "kind", "region", "project", "quantity", "amount_usd")
        } | {"unpriced": 0}


def _bills(number: int) -> Iterator[dict[str, Any]]:
    for kind, unit in (("electricity", "kWh"), ("egress", "GB")):
        yield {
            "project": "nlp",
            "job_id": history_id("job", number),
            "allocation_id": history_id("alloc", number),
            "kind": kind,
            "region": "eu-north",
            "dst": "",
            "gpu_type": "cpu-slot",
            "from_s": _at(number) + 5,
            "to_s": _at(number) + 50,
            "quantity": 0.1,
            "unit": unit,
            "price": 0.1,
            "price_source": "test",
            "amount_usd": 0.01,
        }


def _events(number: int) -> Iterator[dict[str, Any]]:
    for offset_s, kind in ((0, "queued"), (5, "starting"), (6, "running"), (50, "succeeded")):
        yield {
            "project": "nlp",
            "at_s": _at(number) + offset_s,
            "kind": f"job.{kind}",
            "object_kind": "job",
            "object_id": history_id("job", number),
            "actor": "scheduler",
            "data": {"to": kind, "version": 1},
        }
