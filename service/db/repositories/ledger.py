"""What was spent, with the price used. Append-only."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from sqlalchemy import bindparam, func, select
from sqlalchemy.orm import Session

from service.db.tables import LedgerRow

_AT_ONCE = 500  # ids in one statement
_PAID = ("electricity", "rent", "egress")
_SPENT_BY_JOBS = (
    select(
        LedgerRow.job_id,
        LedgerRow.kind,
        LedgerRow.region,
        func.sum(LedgerRow.quantity),
        func.sum(LedgerRow.amount_usd),
        func.count() - func.count(LedgerRow.price),
    )
    .where(LedgerRow.job_id.in_(bindparam("jobs", expanding=True)))
    .group_by(LedgerRow.job_id, LedgerRow.kind, LedgerRow.region)
    .order_by(LedgerRow.job_id, LedgerRow.kind, LedgerRow.region)
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


def spent_by_jobs(session: Session, job_ids: Collection[str]) -> list[Spent]:
    """Sums by job, kind and region."""
    rows = session.connection().execute(_SPENT_BY_JOBS, {"jobs": sorted(job_ids)})
    return [Spent(*row) for row in rows]


def spent_usd_by_allocation(session: Session, allocation_ids: Sequence[str]) -> dict[str, float]:
    """What each of these allocations cost whoever pays: electricity, rent and egress."""
    spent: dict[str, float] = {}
    for first in range(0, len(allocation_ids), _AT_ONCE):
        rows = session.execute(
            select(LedgerRow.allocation_id, func.sum(LedgerRow.amount_usd))
            .where(
                LedgerRow.allocation_id.in_(allocation_ids[first : first + _AT_ONCE]),
                LedgerRow.kind.in_(_PAID),
            )
            .group_by(LedgerRow.allocation_id)
        )
        spent |= {allocation_id: amount for allocation_id, amount in rows}  # noqa: C416 - dict() loses the types
    return spent
