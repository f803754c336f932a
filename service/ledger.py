"""What an allocation costs, written down as it goes, with the price that was used. Append-only.

Electricity is billed for every GPU held, at its measured busy fraction, times the region's PUE, split where the
price changes; rent for the GPU-hours of rented pools; egress for what the reported steps sent over the cuts. The
formulas are `scheduler.cost`'s. A price nobody has told is never made up: such a row has no price, an amount of 0, and
says so.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from agents.protocol import ProcessState
from scheduler import cost
from scheduler.cluster import GpuType, LinkKey, Ownership
from scheduler.datasets import brought_to
from scheduler.job import JobSpec
from scheduler.placement import Placement
from scheduler.price import PriceSeries
from scheduler.profile import boundary_bytes
from service import placements
from service.cluster_view import links_of
from service.db import ledger_queries
from service.db.ledger_queries import Bill, Draw
from service.db.records import AllocationRecord, JobRecord
from service.db.repositories import allocations, cluster, jobs, prices
from service.db.scope import EVERYTHING
from service.db.session import Session
from service.errors import ConflictError
from service.stored_jobs import spec_of

ELECTRICITY = "electricity"
RENT = "rent"
EGRESS = "egress"
NO_PRICE = "no price is known"
IN_THE_RENT = "rented: electricity is in the rent"


@dataclass(frozen=True, slots=True)
class Span:
    """A part of the billed time with one price (USD per unit of the kind), or none that is known."""

    from_s: float
    to_s: float
    price: float | None
    source: str


def bill(session: Session, allocation: AllocationRecord, until_s: float) -> AllocationRecord:
    """Bill what is unbilled up to `until_s`, with the prices known by then; the allocation as it is now.

    Billing the same time twice is impossible: the allocation's row says how far it is billed, and moves with the rows.
    Raises ConflictError if somebody else changed the allocation meanwhile.
    """
    from_s = allocation.created_at_s if allocation.billed_until_s is None else allocation.billed_until_s
    if until_s <= from_s:
        return allocation
    if not allocations.change(session, allocation, billed_until_s=until_s):
        raise ConflictError(f"allocation {allocation.allocation_id} was billed meanwhile")
    job = jobs.get(session, EVERYTHING, allocation.job_id)
    if job is None:
        raise ConflictError(f"allocation {allocation.allocation_id} belongs to no job")
    bills = [
        *_held_gpus(session, allocation, from_s, until_s),
        *_egress(session, allocation, job, from_s, until_s),
    ]
    ledger_queries.append(session, allocation, bills)
    return replace(allocation, billed_until_s=until_s, version=allocation.version + 1)


def bill_live_allocations(session: Session, until_s: float) -> int:
    """Bill every allocation that still holds something; how many there were."""
    unbilled = ledger_queries.unbilled(session, until_s)
    for allocation in unbilled:
        bill(session, allocation, until_s)
    return len(unbilled)


def spans(
    session: Session, *, kind: str, region: str, gpu_type: str = "", dst: str = "", from_s: float, to_s: float
) -> list[Span]:
    """[from_s, to_s] cut where the price changes, by what was known at `to_s`."""
    series = prices.find(session, kind, region, gpu_type, dst)
    if series is None:
        return [Span(from_s, to_s, None, NO_PRICE)]
    points = prices.points(session, [series.series_id], from_s=from_s, to_s=to_s, known_by_s=to_s)
    # Of several points with one validity the last published is in force.
    values = {point.valid_from_s: point.value for point in points}
    edges = sorted(start for start in values if from_s < start < to_s)
    holding = max((start for start in values if start <= from_s), default=None)
    found = []
    for left, right in zip([from_s, *edges], [*edges, to_s], strict=True):
        value = values.get(left, None if holding is None else values[holding])
        found.append(Span(left, right, value, NO_PRICE if value is None else series.source))
    return found


def mean_power_w(gpu: GpuType, draws: Sequence[Draw], *, running: bool) -> float:
    """Mean draw of the GPUs of one type, W before PUE.

    A process that has never told how busy it is counts as idle until its gang runs and as busy from then on: an
    upper bound, for users' own commands. One that has ended leaves its GPU idle, but held.
    """
    return math.fsum(cost.power_w(gpu, _busy(draw, running)) for draw in draws) / len(draws)


def _busy(draw: Draw, running: bool) -> float:
    if draw.state not in (ProcessState.STARTING, ProcessState.READY):
        return 0.0
    if draw.busy_fraction is not None:
        return draw.busy_fraction
    return 1.0 if running else 0.0


def _held_gpus(session: Session, allocation: AllocationRecord, from_s: float, to_s: float) -> Iterator[Bill]:
    draws = ledger_queries.draws(session, allocation.allocation_id)
    for region, gpu_type in sorted({(draw.region, draw.gpu_type) for draw in draws}):
        mine = [draw for draw in draws if (draw.region, draw.gpu_type) == (region, gpu_type)]
        place = cluster.region(session, region)
        kind = cluster.gpu_type(session, gpu_type)
        pool = cluster.pool(session, region, gpu_type)
        if place is None or kind is None or pool is None:
            raise ConflictError(
                f"pool {region}/{gpu_type} is gone, but {allocation.allocation_id} holds GPUs there"
            )
        # What the GPU sustains has no part in what it draws.
        gpu = GpuType(gpu_type, 1.0, kind.memory_bytes, kind.power_w, kind.idle_w)
        watts = mean_power_w(gpu, mine, running=allocation.running_at_s is not None)
        kilowatts = cost.facility_kw(len(mine), watts, place.pue)
        rented = pool.ownership == Ownership.RENTED
        for span in spans(session, kind=ELECTRICITY, region=region, from_s=from_s, to_s=to_s):
            yield _electricity(region, gpu_type, kilowatts, span, rented)
        if rented:
            for span in spans(session, kind=RENT, region=region, gpu_type=gpu_type, from_s=from_s, to_s=to_s):
                yield _rent(region, gpu_type, len(mine), span)


def _electricity(region: str, gpu_type: str, kilowatts: float, span: Span, rented: bool) -> Bill:
    price, source = (0.0, IN_THE_RENT) if rented else (span.price, span.source)
    amount = 0.0
    if price is not None:
        amount = cost.electricity_usd(PriceSeries.flat(price), span.from_s, span.to_s, kilowatts)
    return Bill(
        kind=ELECTRICITY,
        region=region,
        dst="",
        gpu_type=gpu_type,
        from_s=span.from_s,
        to_s=span.to_s,
        quantity=cost.energy_kwh(kilowatts, span.to_s - span.from_s),
        unit="kWh",
        price=price,
        price_source=source,
        amount_usd=amount,
    )


def _rent(region: str, gpu_type: str, gpus: int, span: Span) -> Bill:
    duration_s = span.to_s - span.from_s
    return Bill(
        kind=RENT,
        region=region,
        dst="",
        gpu_type=gpu_type,
        from_s=span.from_s,
        to_s=span.to_s,
        quantity=gpus * duration_s / cost.SECONDS_PER_HOUR,
        unit="GPU-hour",
        price=span.price,
        price_source=span.source,
        amount_usd=0.0 if span.price is None else cost.rent_usd(gpus, duration_s, span.price),
    )


def _egress(
    session: Session, allocation: AllocationRecord, job: JobRecord, from_s: float, to_s: float
) -> Iterator[Bill]:
    """Each cut sends in both directions; a step is billed once, whenever its report came, at the price of then. So is
    what the job brought to where it began."""
    placement = placements.from_document(allocation.placement)
    spec = spec_of(job)
    if not (placement.cuts or spec.data):
        return
    sent = defaultdict(float, _brought(session, allocation, placement, spec))
    step_bytes = cost.egress_bytes_per_iteration(boundary_bytes(spec), spec.training.micro_batches)
    steps = ledger_queries.steps_run(session, job.job_id, allocation.generation)
    for cut in placement.cuts:
        for direction in ((cut.src, cut.dst), (cut.dst, cut.src)):
            sent[direction] += steps * step_bytes
    for src, dst in sorted(sent):
        sent_gb = sent[src, dst] / cost.BYTES_PER_GB
        billed_gb = ledger_queries.billed_quantity(session, allocation.allocation_id, EGRESS, src, dst)
        unbilled_gb = sent_gb - billed_gb
        if unbilled_gb <= 1e-9 * sent_gb:
            continue
        now = spans(session, kind=EGRESS, region=src, dst=dst, from_s=from_s, to_s=to_s)[-1]
        yield Bill(
            kind=EGRESS,
            region=src,
            dst=dst,
            gpu_type="",
            from_s=from_s,
            to_s=to_s,
            quantity=unbilled_gb,
            unit="GB",
            price=now.price,
            price_source=now.source,
            amount_usd=0.0
            if now.price is None
            else cost.egress_usd(unbilled_gb * cost.BYTES_PER_GB, now.price),
        )


def _brought(
    session: Session, allocation: AllocationRecord, placement: Placement, spec: JobSpec
) -> dict[LinkKey, float]:
    """Bytes of data sets, by link, that a job brings to where it begins, if it never began there before."""
    first = placement.segments[0].region
    if not spec.data or any(
        placements.from_document(each.placement).segments[0].region == first
        for each in allocations.of_jobs(session, EVERYTHING, [spec.job_id])
        if each.generation < allocation.generation
    ):
        return {}
    sent: dict[LinkKey, float] = {}
    for each in brought_to(spec, links_of(session, allocation.created_at_s), first) or ():
        sent[each.src, each.dst] = sent.get((each.src, each.dst), 0.0) + each.sent_bytes
    return sent
