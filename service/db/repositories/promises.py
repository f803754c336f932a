"""What plans have promised and what has not begun yet."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import bindparam, delete, func, insert, select

from service.db.reader import Reader
from service.db.records import PromiseRecord
from service.db.scope import changed
from service.db.session import Session
from service.db.tables import PromiseRow

_promises = Reader(PromiseRecord, PromiseRow)
_ALL = _promises.select().order_by(PromiseRow.seq)
_OF_JOBS = _promises.select(PromiseRow.job_id.in_(bindparam("jobs", expanding=True)))
_BY_KIND = select(PromiseRow.kind, func.count()).group_by(PromiseRow.kind)


def add(session: Session, rows: Sequence[dict[str, Any]]) -> None:
    """Columns of each but `seq`, in the order of their rights. IntegrityError if one of the jobs has a promise."""
    if rows:
        session.execute(insert(PromiseRow), rows)


def all_of_them(session: Session) -> list[PromiseRecord]:
    """Of every project, the oldest right first."""
    return _promises.fetch(session, _ALL, {})


def of_jobs(session: Session, job_ids: Collection[str]) -> dict[str, PromiseRecord]:
    """By job, for those of these jobs that have one."""
    found = _promises.fetch(session, _OF_JOBS, {"jobs": list(job_ids)})
    return {record.job_id: record for record in found}


def count_by_kind(session: Session) -> dict[str, int]:
    """How many starts and moves are promised."""
    found = session.execute(_BY_KIND)
    return {kind: count for kind, count in found}  # noqa: C416 - dict() loses the types


def drop(session: Session, job_id: str) -> bool:
    """False if the job has none."""
    return changed(session.execute(delete(PromiseRow).where(PromiseRow.job_id == job_id)))
