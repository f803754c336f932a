"""What the workers report: the series of steps, and log lines."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection

from sqlalchemy import bindparam, select
from sqlalchemy.orm import Session, aliased

from service.db.parts import parts
from service.db.reader import Reader
from service.db.records import LogRecord, StepRecord
from service.db.scope import Scope
from service.db.tables import JobRow, LogRow, StepRow

_steps = Reader(StepRecord, StepRow)
_logs = Reader(LogRecord, LogRow)

RECENT_STEPS = 50
_FIRST, _LAST = aliased(StepRow), aliased(StepRow)
_END_LOSSES = select(
    JobRow.job_id,
    select(_FIRST.loss)
    .where(_FIRST.job_id == JobRow.job_id)
    .order_by(_FIRST.step)
    .limit(1)
    .scalar_subquery(),
    select(_LAST.loss)
    .where(_LAST.job_id == JobRow.job_id)
    .order_by(_LAST.step.desc())
    .limit(1)
    .scalar_subquery(),
).where(JobRow.job_id.in_(bindparam("jobs", expanding=True)))
_RECENT_TIMES = (
    select(StepRow.job_id, StepRow.step, StepRow.generation, StepRow.step_time_s)
    .join(JobRow, JobRow.job_id == StepRow.job_id)
    .where(
        JobRow.job_id.in_(bindparam("jobs", expanding=True)),
        StepRow.step > JobRow.reported_steps - RECENT_STEPS,
    )
    .order_by(StepRow.job_id, StepRow.step.desc())
)


def steps(session: Session, scope: Scope, job_id: str, after_step: int, limit: int) -> list[StepRecord]:
    """Steps of a job above `after_step`, in order."""
    return _steps.all(
        session,
        StepRow.job_id == job_id,
        StepRow.step > after_step,
        scope.of(StepRow.project),
        order_by=[StepRow.step],
        limit=limit,
    )


def last_steps(session: Session, job_id: str, generation: int, count: int) -> list[StepRecord]:
    """The newest steps of one generation, newest first."""
    return _steps.all(
        session,
        StepRow.job_id == job_id,
        StepRow.generation == generation,
        order_by=[StepRow.step.desc()],
        limit=count,
    )


def end_losses(session: Session, job_ids: Collection[str]) -> dict[str, tuple[float | None, float | None]]:
    """The losses of the first and the last step of each of these jobs that has reported any."""
    return {
        job_id: (first, last)
        for part in parts(sorted(job_ids))
        for job_id, first, last in session.connection().execute(_END_LOSSES, {"jobs": part})
    }


def recent_times(session: Session, job_ids: Collection[str]) -> dict[str, list[tuple[int, int, float]]]:
    """(step, generation, step_time_s) of the last `RECENT_STEPS` steps that each of these jobs has reached, the newest
    first."""
    found: dict[str, list[tuple[int, int, float]]] = defaultdict(list)
    for part in parts(sorted(job_ids)):
        for job_id, step, generation, step_time_s in session.connection().execute(
            _RECENT_TIMES, {"jobs": part}
        ):
            found[job_id].append((step, generation, step_time_s))
    return found


def log_lines(
    session: Session, scope: Scope, job_id: str, *, stage: int | None, after_seq: int, limit: int
) -> list[LogRecord]:
    """Lines of a job in the order in which they arrived."""
    where = [LogRow.job_id == job_id, LogRow.seq > after_seq, scope.of(LogRow.project)]
    if stage is not None:
        where.append(LogRow.stage == stage)
    return _logs.all(session, *where, order_by=[LogRow.seq], limit=limit)


def last_log_lines(
    session: Session, scope: Scope, job_id: str, *, stage: int | None, limit: int
) -> list[LogRecord]:
    """The newest lines of a job, in the order in which they arrived."""
    where = [LogRow.job_id == job_id, scope.of(LogRow.project)]
    if stage is not None:
        where.append(LogRow.stage == stage)
    return _logs.all(session, *where, order_by=[LogRow.seq.desc()], limit=limit)[::-1]
