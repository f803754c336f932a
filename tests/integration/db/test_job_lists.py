"""Lists of jobs: every job once and in order at any page, whatever is asked for, along an index; and told as alone."""

from __future__ import annotations

import random
from itertools import product
from pathlib import Path

import pytest
from sqlalchemy import Engine, insert, text
from sqlalchemy.orm import Session

from service import job_views
from service.db.engine import make_engine
from service.db.repositories import access, jobs, reports
from service.db.scope import EVERYTHING, Scope
from service.db.tables import AllocationRow, Base, JobRow, StepRow
from tests.perf.history import allocation_row, history_id, job_row

STATES = ("queued", "running", "succeeded", "failed")
JOBS = 60


@pytest.fixture
def filled(engine: Engine) -> Engine:
    """Jobs of two projects in all states, several of them submitted at one moment; some have run in generations."""
    draw = random.Random(5)
    rows, generations, steps = [], [], []
    for number in range(JOBS):
        row = job_row(number, {"model": {}})
        row |= {
            "project": draw.choice(("nlp", "vision")),
            "state": draw.choice(STATES),
            "submitted_at_s": 1e9 + number // 3,
        }
        reached: dict[int, tuple[int, int]] = {}
        generation = 0
        for generation in range(1, draw.randrange(4) + 1):
            begin = draw.randrange(1, 120)
            generations.append(
                allocation_row(number)
                | {
                    "allocation_id": history_id(f"alloc{generation}", number),
                    "project": row["project"],
                    "generation": generation,
                    "first_step": begin,
                }
            )
            reached |= {step: (generation, step) for step in range(begin, begin + draw.choice((0, 1, 7, 90)))}
        row["reported_steps"] = max(reached, default=0)
        row["generation"] = generation
        rows.append(row)
        steps += [
            {
                "job_id": row["job_id"],
                "step": step,
                "project": row["project"],
                "generation": held[0],
                "loss": None if step % 7 == 0 else float(step),
                "step_time_s": draw.random(),
                "tokens": 1,
                "at_s": 1.0,
            }
            for step, held in reached.items()
        ]
    with Session(engine) as session:
        for project in ("nlp", "vision"):
            access.ensure_project(session, project, 0.0)
        for table, values in ((JobRow, rows), (AllocationRow, generations), (StepRow, steps)):
            session.execute(insert(table.__table__), values)  # type: ignore[arg-type]  # it is a Table
        session.commit()
    return engine


def test_pages_hold_every_job_once_the_newest_first(filled: Engine) -> None:
    asked = ((), ("running",), ("running", "queued"), STATES, ("cancelled",))
    with Session(filled) as session:
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


def test_a_list_tells_of_each_job_what_it_would_tell_alone(
    filled: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Session(filled) as session:
        everyone = jobs._jobs.all(session, order_by=[JobRow.job_id])
        together = job_views.view_jobs(session, everyone, 2e9)
        monkeypatch.setattr(reports, "recent_times", lambda _session, _ids: {})
        alone = [job_views.view_jobs(session, [job], 2e9)[0] for job in everyone]
        ends = {
            job.job_id: [step.loss for step in reports.steps(session, EVERYTHING, job.job_id, 0, 1000)]
            for job in everyone
        }
    assert together == alone
    assert sum(view.measured_iteration_s is not None for view in together) > JOBS / 3
    for view in together:
        losses = ends[view.job.job_id]
        assert (view.first_loss, view.last_loss) == ((losses[0], losses[-1]) if losses else (None, None))
