"""What was spent, with the price used. Append-only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from sqlalchemy import bindparam, func, select

from service.db.parts import parts
from service.db.session import Session
from service.db.tables import JobSpendingRow, LedgerRow
from service.db.upsert import insert_of

_AT_ONCE = 500  # ids in one statement
_PAID = ("electricity", "rent", "egress")
_SPENT_BY_JOBS = (
    select(
        JobSpendingRow.job_id,
        JobSpendingRow.kind,
        JobSpendingRow.region,
        JobSpendingRow.quantity,
        JobSpendingRow.amount_usd,
        JobSpendingRow.unpriced,
    )
    .where(JobSpendingRow.job_id.in_(bindparam("jobs", expanding=True)))
    .order_by(JobSpendingRow.job_id, JobSpendingRow.kind, JobSpendingRow.region)
)
_SPENT_BY_ALLOCATION = (
    select(LedgerRow.allocation_id, func.sum(LedgerRow.amount_usd))
    .where(LedgerRow.allocation_id.in_(bindparam("allocations", expanding=True)), LedgerRow.kind.in_(_PAID))
    .group_by(LedgerRow.allocation_id)
)


@dataclass(frozen=True, slots=True)
class Spent:
    """A job's sum of one kind (electricity, rent, egress, carbon) in one region."""

    job_id: str
    kind: str
    region: str
    quantity: float
    amount_usd: float
    unpriced: int
    """Entries for which no price was known; they count with 0 USD."""


def spent_by_jobs(session: Session, job_ids: Sequence[str]) -> list[Spent]:
    """Sums by job, kind and region."""
    return [
        Spent(*row)
        for part in parts(job_ids)
        for row in session.execute(_SPENT_BY_JOBS, {"jobs": part}).all()
    ]


def add_spent(session: Session, project: str, spent: Sequence[Spent]) -> None:
    """Count what has just been billed to jobs of a project; each job, kind and region once."""
    rows = [{name: getattr(each, name) for name in Spent.__slots__} | {"project": project} for each in spent]
    session.execute(_add_spent(session.dialect), rows)


def spent_usd_by_allocation(session: Session, allocation_ids: Sequence[str]) -> dict[str, float]:
    """What each of these allocations cost whoever pays: electricity, rent and egress."""
    spent: dict[str, float] = {}
    for first in range(0, len(allocation_ids), _AT_ONCE):
        part = allocation_ids[first : first + _AT_ONCE]
        rows = session.execute(_SPENT_BY_ALLOCATION, {"allocations": part})
        spent |= {allocation_id: amount for allocation_id, amount in rows}  # noqa: C416 - dict() loses the types
    return spent


@cache
def _add_spent(dialect: str) -> Any:
    table = JobSpendingRow.__table__
    statement = insert_of(dialect, table)
    return statement.on_conflict_do_update(
        index_elements=["job_id", "kind", "region"],
        set_={
            name: table.c[name] + statement.excluded[name] for name in ("quantity", "amount_usd", "unpriced")
        },
    )
