"""Lists of jobs: every job once and in order at any page, whatever is asked for, along an index; and told as alone."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from sqlalchemy import Engine, insert, select, text

from scheduler.spec.job import parse_job
from service import job_views
from service.api.answers import answered_documents
from service.api.schemas.base import Page
from service.api.schemas.jobs import Job, document_of
from service.db import agent_queries, migrate
from service.db.engine import Mode, begun, make_engine
from service.db.repositories import access, jobs, ledger
from service.db.scope import EVERYTHING, Scope
from service.db.session import Session
from service.db.tables import AllocationRow, Base, JobRow, LedgerRow, StepSeriesRow
from tests.control_world import job_document
from tests.perf.history import allocation_row, history_id, job_row

STATES = ("queued", "running", "succeeded", "failed")
JOBS = 60


@dataclass(frozen=True, slots=True)
class Filled:
    """A database with jobs, and the steps of each as its generations told them, in order."""

    engine: Engine
    told: Mapping[str, Sequence[dict[str, Any]]]


@contextmanager
def session_on(engine: Engine) -> Iterator[Session]:
    """What is written in it is committed."""
    with begun(engine, Mode.WRITE) as connection:
        yield Session(connection)
        connection.commit()


@pytest.fixture
def filled(engine: Engine) -> Filled:
    """Jobs of two projects in all states, several of them submitted at one moment; some have run in generations."""
    draw = random.Random(5)
    spec = parse_job(job_document()).completed()
    rows, generations, told = [], [], {}
    for number in range(JOBS):
        row = job_row(number, spec)
        row |= {
            "project": draw.choice(("nlp", "vision")),
            "state": draw.choice(STATES),
            "submitted_at_s": 1e9 + number // 3,
            "reasons": draw.choice(([], [{"code": "PlanPending", "detail": "soon"}])),
            "reported_steps": 0,
            "generation": draw.randrange(4),
        }
        told[row["job_id"]] = steps = []
        for generation in range(1, row["generation"] + 1):
            begin = draw.randrange(1, 120) if steps else 1
            generations.append(
                allocation_row(number)
                | {
                    "allocation_id": history_id(f"alloc{generation}", number),
                    "project": row["project"],
                    "generation": generation,
                    "first_step": begin,
                    "stop_cause": draw.choice((None, "preempted", "moved")),
                }
            )
            for step in range(begin, begin + draw.choice((0, 1, 2, 7, 50, 51, 90))):
                row["reported_steps"] = step
                steps.append(_step(row, generation, step, draw))
        rows.append(row)
    with session_on(engine) as session:
        for project in ("nlp", "vision"):
            access.ensure_project(session, project, 0.0)
        for table, values in ((JobRow, rows), (AllocationRow, generations)):
            session.execute(insert(table.__table__), values)  # type: ignore[arg-type]  # it is a Table
        waiting = {job_id: list(steps) for job_id, steps in told.items()}
        while any(waiting.values()):
            agent_queries.store_steps(session, _some(waiting, draw))
    return Filled(engine, told)


def _step(row: dict[str, Any], generation: int, step: int, draw: random.Random) -> dict[str, Any]:
    return {
        "job_id": row["job_id"],
        "step": step,
        "project": row["project"],
        "generation": generation,
        "loss": math.nan if step % 7 == 0 else draw.random(),
        "step_time_s": draw.random(),
        "tokens": 1,
        "at_s": 1.0,
        "grad_norm": draw.choice([None, math.nan, draw.uniform(0, 3)]),
        "compute_s": None,
        "send_s": None,
        "drift": None,
        "drift_bound": None,
        "rolled_back": None,
    }


def _some(waiting: dict[str, list[dict[str, Any]]], draw: random.Random) -> list[dict[str, Any]]:
    """The next steps of each job, as many heartbeats bring them: some of them again."""
    taken = []
    for job_id, steps in waiting.items():
        count = draw.randrange(5)
        taken += steps[:count]
        waiting[job_id] = steps[count if draw.random() < 0.8 else count // 2 :]
    return taken


def test_pages_hold_every_job_once_the_newest_first(filled: Filled) -> None:
    asked = ((), ("running",), ("running", "queued"), STATES, ("cancelled",))
    with session_on(filled.engine) as session:
        everyone = jobs._jobs.all(session)
        for scope, states in product((EVERYTHING, Scope("nlp"), Scope("nobody")), asked):
            expected = sorted(
                (
                    job
                    for job in everyone
                    if (not states or job.state in states) and scope.covers(job.project)
                ),
                key=lambda job: (job.submitted_at_s, job.job_id),
                reverse=True,
            )
            seen, before = [], None
            while page := jobs.page(session, scope, states=states, before=before, limit=7):
                seen += page
                before = (page[-1].submitted_at_s, page[-1].job_id)
            assert seen == expected, (scope, states)


def test_no_list_sorts_or_looks_at_what_it_does_not_show(tmp_path: Path) -> None:
    engine = make_engine(f"sqlite:///{tmp_path / 'bace.db'}")
    Base.metadata.create_all(engine)
    after = "(submitted_at_s, job_id) < (2e9, 'z') ORDER BY submitted_at_s DESC, job_id DESC LIMIT 7"
    with engine.connect() as connection:
        for where in (
            "",
            "state = 'queued' AND",
            "project = 'nlp' AND",
            "project = 'nlp' AND state = 'queued' AND",
        ):
            query = f"SELECT * FROM jobs WHERE {where} {after}"  # noqa: S608 - of the texts above
            plan = " ".join(str(row) for row in connection.execute(text(f"EXPLAIN QUERY PLAN {query}")))
            assert "USING INDEX jobs_by_" in plan
            assert "TEMP B-TREE" not in plan
    engine.dispose()


def test_a_list_tells_of_each_job_what_it_would_tell_alone(filled: Filled) -> None:
    with session_on(filled.engine) as session:
        everyone = jobs._jobs.all(session, order_by=[JobRow.job_id])
        together = job_views.view_jobs(session, everyone, 2e9)
        alone = [job_views.view_jobs(session, [job], 2e9)[0] for job in everyone]
    assert together == alone
    page = json.loads(answered_documents([document_of(view) for view in together], "next").body)
    validated = Page[Job](items=[Job.of(view) for view in together], next="next")
    assert page == validated.model_dump(mode="json")
    assert json.dumps(page["items"]) == json.dumps(
        [json.loads(job.model_dump_json()) for job in validated.items]
    )


def test_losses_and_iteration_time_are_those_of_the_steps(filled: Filled) -> None:
    with session_on(filled.engine) as session:
        views = job_views.view_jobs(session, jobs._jobs.all(session), 2e9)
    for view in views:
        told = filled.told[view.job.job_id]
        if not told:
            assert (view.first_loss, view.last_loss, view.measured_iteration_s) == (None, None, None)
            assert view.last_grad_norm is None
            continue
        newest = [step for step in told if step["generation"] == told[-1]["generation"]]
        first = [step for step in told if step["step"] == 1][-1]
        assert view.first_loss == _finite(first["loss"])
        assert view.last_loss == _finite(newest[-1]["loss"])
        assert view.last_grad_norm == _finite(newest[-1]["grad_norm"])
        warm_s = [step["step_time_s"] for step in newest[1:] or newest]
        assert view.measured_iteration_s == median(warm_s[-50:])
    assert sum(view.measured_iteration_s is not None for view in views) > JOBS / 3


def test_what_a_list_tells_is_filled_from_what_an_older_version_stored(filled: Filled) -> None:
    with filled.engine.begin() as connection:
        connection.execute(insert(LedgerRow.__table__), _bills(filled.told))  # type: ignore[arg-type]
    told = _beside(filled.engine)
    assert len(told) > JOBS / 3
    migrate.downgrade(filled.engine, "0010")
    migrate.upgrade(filled.engine)
    assert _beside(filled.engine) == told
    with session_on(filled.engine) as session:
        spent = ledger.spent_by_jobs(session, list(filled.told))
    assert {(each.job_id, each.quantity, each.amount_usd, each.unpriced) for each in spent} == {
        (job_id, 3.0, 5.0, 1) for job_id in filled.told
    }


def _finite(told: float | None) -> float | None:
    return told if told is not None and math.isfinite(told) else None


def _beside(engine: Engine) -> list[Any]:
    with engine.connect() as connection:
        return list(connection.execute(select(StepSeriesRow.__table__).order_by(StepSeriesRow.job_id)).all())


def _bills(job_ids: Iterable[str]) -> list[dict[str, Any]]:
    """Two of a kind and region for each job, the second without a price."""
    return [
        {
            "project": "nlp",
            "job_id": job_id,
            "allocation_id": f"of-{job_id}",
            "kind": "electricity",
            "region": "eu-north",
            "dst": "",
            "gpu_type": "",
            "from_s": from_s,
            "to_s": from_s + 1,
            "quantity": quantity,
            "unit": "kWh",
            "price": price,
            "price_source": "test",
            "amount_usd": amount_usd,
        }
        for job_id in job_ids
        for from_s, quantity, price, amount_usd in ((0.0, 1.0, 5.0, 5.0), (1.0, 2.0, None, 0.0))
    ]
