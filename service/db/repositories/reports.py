"""What the workers report: the series of steps, and log lines."""

from __future__ import annotations

from service.db.reader import Reader
from service.db.records import LogRecord, StepRecord
from service.db.scope import Scope
from service.db.session import Session
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
