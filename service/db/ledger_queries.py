"""What billing reads and appends: how far an allocation is billed, what its processes did, and the rows themselves."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from sqlalchemy import Table, bindparam, func, insert, or_, select

from scheduler.placement import AllocationState
from service.db.reader import Reader
from service.db.records import AllocationRecord
from service.db.repositories import ledger, quotas
from service.db.repositories.ledger import Spent
from service.db.session import Session
from service.db.tables import AllocationRow, LedgerRow, NodeRow, ProcessRow, StepRow, StepSeriesRow
from service.months import month_of

_allocations = Reader(AllocationRecord, AllocationRow)
# Every allocation that lives is billed every few minutes, and once when it ends.
_UNBILLED = _allocations.select(
    AllocationRow.state != AllocationState.ENDED.value,
    AllocationRow.created_at_s < bindparam("until_s"),
    or_(AllocationRow.billed_until_s.is_(None), AllocationRow.billed_until_s < bindparam("until_s")),
).order_by(AllocationRow.allocation_id)
_DRAWS = (
    select(ProcessRow.region, NodeRow.gpu_type, ProcessRow.state, ProcessRow.busy_fraction)
    .join(NodeRow, NodeRow.node_id == ProcessRow.node_id)
    .where(ProcessRow.allocation_id == bindparam("allocation"))
    .order_by(ProcessRow.rank)
)
_NEWEST_STEPS = select(StepSeriesRow.generation, StepSeriesRow.last_step - StepSeriesRow.from_step + 1).where(
    StepSeriesRow.job_id == bindparam("job")
)
_STEPS_REPORTED = select(func.count()).where(
    StepRow.job_id == bindparam("job"), StepRow.generation == bindparam("of_generation")
)
_BILLED_QUANTITY = select(func.coalesce(func.sum(LedgerRow.quantity), 0.0)).where(
    LedgerRow.allocation_id == bindparam("allocation"),
    LedgerRow.kind == bindparam("of_kind"),
    LedgerRow.region == bindparam("src"),
    LedgerRow.dst == bindparam("to"),
)
_INSERT = insert(cast("Table", LedgerRow.__table__))


@dataclass(frozen=True, slots=True)
class Draw:
    """One process of an allocation as the meter sees it."""

    region: str
    gpu_type: str
    state: str
    busy_fraction: float | None


@dataclass(frozen=True, slots=True)
class Bill:
    """A row of the ledger to be. Meaning of the fields: `tables.LedgerRow`."""

    kind: str
    region: str
    dst: str
    gpu_type: str
    from_s: float
    to_s: float
    quantity: float
    unit: str
    price: float | None
    price_source: str
    amount_usd: float


def unbilled(session: Session, until_s: float) -> list[AllocationRecord]:
    """Live allocations that are billed to an earlier moment, or not at all."""
    return _allocations.fetch(session, _UNBILLED, {"until_s": until_s})


def draws(session: Session, allocation_id: str) -> list[Draw]:
    """A draw for each of its processes, by rank."""
    return [Draw(*row) for row in session.execute(_DRAWS, {"allocation": allocation_id})]


def steps_run(session: Session, job_id: str, generation: int) -> int:
    """Steps that this generation of the job has run: from the first to the last that it has reported.

    Of one that is not the newest to report any, those that no later one has run again.
    """
    newest = session.execute(_NEWEST_STEPS, {"job": job_id}).first()
    if newest is None or newest[0] < generation:
        return 0
    if newest[0] == generation:
        return int(newest[1])
    return session.scalar(_STEPS_REPORTED, {"job": job_id, "of_generation": generation}) or 0


def billed_quantity(session: Session, allocation_id: str, kind: str, region: str, dst: str) -> float:
    """What the ledger holds of one kind already, in its unit."""
    parameters = {"allocation": allocation_id, "of_kind": kind, "src": region, "to": dst}
    return float(session.scalar(_BILLED_QUANTITY, parameters) or 0.0)


def append(session: Session, allocation: AllocationRecord, bills: Sequence[Bill]) -> None:
    """Append rows; IntegrityError if one of them was billed before."""
    if not bills:
        return
    spent: defaultdict[str, float] = defaultdict(float)
    for bill in bills:
        spent[month_of(bill.from_s)] += bill.amount_usd
    quotas.add_spent(session, allocation.project, spent)
    ledger.add_spent(session, allocation.project, _sums(allocation.job_id, bills))
    session.execute(
        _INSERT,
        [
            {
                "project": allocation.project,
                "job_id": allocation.job_id,
                "allocation_id": allocation.allocation_id,
                **{name: getattr(bill, name) for name in Bill.__slots__},
            }
            for bill in bills
        ],
    )


def _sums(job_id: str, bills: Sequence[Bill]) -> list[Spent]:
    """By kind and region."""
    found: defaultdict[tuple[str, str], list[Bill]] = defaultdict(list)
    for bill in bills:
        found[bill.kind, bill.region].append(bill)
    return [
        Spent(
            job_id,
            kind,
            region,
            quantity=math.fsum(bill.quantity for bill in mine),
            amount_usd=math.fsum(bill.amount_usd for bill in mine),
            unpriced=sum(bill.price is None for bill in mine),
        )
        for (kind, region), mine in sorted(found.items())
    ]
