"""Jobs."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Select, bindparam, func, select, tuple_, union_all

from scheduler.job import JobState
from service.db.reader import Reader
from service.db.records import JobRecord
from service.db.scope import Scope
from service.db.session import Session
from service.db.tables import JobRow

_jobs = Reader(JobRecord, JobRow)
_IN_STATES = _jobs.select(JobRow.state.in_(bindparam("states", expanding=True))).order_by(
    JobRow.submitted_at_s, JobRow.job_id
)
_ENDED_LAST = (
    _jobs.select(JobRow.finished_at_s.is_not(None), JobRow.state != JobState.REJECTED.value)
    .order_by(JobRow.finished_at_s.desc(), JobRow.job_id.desc())
    .limit(bindparam("most"))
)
_NEWEST_FIRST = (JobRow.submitted_at_s.desc(), JobRow.job_id.desc())


def add(session: Session, *jobs: JobRecord) -> None:
    _jobs.add(session, *jobs)


def get(session: Session, scope: Scope, job_id: str) -> JobRecord | None:
    found = _jobs.get(session, job_id)
    return found if found is not None and scope.covers(found.project) else None


def with_prefix(session: Session, scope: Scope, prefix: str, limit: int) -> list[JobRecord]:
    """Jobs whose id starts with `prefix` ([a-z0-9-] only), oldest first."""
    after_all = prefix + "\x7f"  # above every character of an id
    return _jobs.all(
        session,
        JobRow.job_id >= prefix,
        JobRow.job_id < after_all,
        scope.of(JobRow.project),
        order_by=[JobRow.job_id],
        limit=limit,
    )


def page(
    session: Session,
    scope: Scope,
    *,
    states: Collection[str],
    before: tuple[float, str] | None,
    limit: int,
) -> list[JobRecord]:
    """Newest first, those before the key (submitted_at_s, job_id); of these states, or of any if none is given.

    Several states are looked for one by one, each along its index: a database would sort all jobs of all of them.
    """
    where = [scope.of(JobRow.project)]
    if before is not None:
        where.append(tuple_(JobRow.submitted_at_s, JobRow.job_id) < tuple_(*before))
    wanted = sorted(set(states))
    if len(wanted) == 1:
        where.append(JobRow.state == wanted[0])
    elif wanted:
        where = [JobRow.job_id.in_(_newest_of_any(wanted, where, limit))]
    return _jobs.all(session, *where, order_by=_NEWEST_FIRST, limit=limit)


def in_states(session: Session, states: Collection[JobState]) -> list[JobRecord]:
    """Of every project, in order of submission."""
    return _jobs.fetch(session, _IN_STATES, {"states": [state.value for state in states]})


def ended_last(session: Session, limit: int) -> list[JobRecord]:
    """Those of every project that have ended and had been able to run, the last end first."""
    return _jobs.fetch(session, _ENDED_LAST, {"most": limit})


def names(session: Session, job_ids: Collection[str]) -> dict[str, str]:
    """Name of each of these jobs."""
    rows = session.execute(select(JobRow.job_id, JobRow.name).where(JobRow.job_id.in_(job_ids)))
    return {job_id: name for job_id, name in rows}  # noqa: C416 - dict() loses the types


def count_by_state(session: Session, scope: Scope) -> dict[tuple[str, str], int]:
    """(project, state) → how many."""
    rows = session.execute(
        select(JobRow.project, JobRow.state, func.count())
        .where(scope.of(JobRow.project))
        .group_by(JobRow.project, JobRow.state)
    )
    return {(project, state): count for project, state, count in rows}


def change(session: Session, job: JobRecord, **values: Any) -> bool:
    """Sets `values` if the row is still as `job` has it; False if somebody else changed it meanwhile."""
    return _jobs.change(session, job, **values)


def _newest_of_any(states: Sequence[str], where: Sequence[ColumnElement[bool]], limit: int) -> Select[Any]:
    """Ids of the newest in any of these states: of each so many along its index, and of those so many."""
    each = [
        select(JobRow.job_id, JobRow.submitted_at_s)
        .where(*where, JobRow.state == state)
        .order_by(*_NEWEST_FIRST)
        .limit(limit)
        .subquery()
        for state in states
    ]
    found = union_all(*map(select, each)).subquery()
    return select(found.c.job_id).order_by(found.c.submitted_at_s.desc(), found.c.job_id.desc()).limit(limit)
