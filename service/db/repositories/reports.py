"""What the workers report: the series of steps, and log lines."""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from service.db.reader import Reader
from service.db.records import LogRecord, StepRecord
from service.db.scope import Scope
from service.db.tables import LogRow, StepRow

_steps = Reader(StepRecord, StepRow)
_logs = Reader(LogRecord, LogRow)


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


def ends(session: Session, job_ids: Collection[str]) -> dict[str, tuple[StepRecord, StepRecord]]:
    """The first and the last reported step of each job that has any."""
    bounds = (
        select(StepRow.job_id, func.min(StepRow.step).label("low"), func.max(StepRow.step).label("high"))
        .where(StepRow.job_id.in_(job_ids))
        .group_by(StepRow.job_id)
        .subquery()
    )
    found = _steps.fetch(
        session,
        _steps.select(StepRow.step.in_((bounds.c.low, bounds.c.high)))
        .join(bounds, bounds.c.job_id == StepRow.job_id)
        .order_by(StepRow.step),
    )
    result: dict[str, tuple[StepRecord, StepRecord]] = {}
    for step in found:
        result[step.job_id] = (result.get(step.job_id, (step, step))[0], step)
    return result


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
