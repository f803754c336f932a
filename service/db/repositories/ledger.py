"""What was spent, with the price used. Append-only."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from service.db.tables import LedgerRow


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
    rows = session.execute(
        select(
            LedgerRow.job_id,
            LedgerRow.kind,
            LedgerRow.region,
            func.sum(LedgerRow.quantity),
            func.sum(LedgerRow.amount_usd),
            func.count() - func.count(LedgerRow.price),
        )
        .where(LedgerRow.job_id.in_(job_ids))
        .group_by(LedgerRow.job_id, LedgerRow.kind, LedgerRow.region)
        .order_by(LedgerRow.job_id, LedgerRow.kind, LedgerRow.region)
    )
    return [Spent(*row) for row in rows]
