"""What a placement will cost from now on, at the prices known or forecast: what a month's spending is held against."""

from __future__ import annotations

import math

from scheduler import cost
from scheduler.cluster import Ownership
from scheduler.evaluate import evaluate
from scheduler.forecast import forecast
from scheduler.job import JobSpec
from scheduler.placement import Placement
from scheduler.profile import boundary_bytes
from scheduler.snapshot import Snapshot


def expected_usd(
    snapshot: Snapshot, spec: JobSpec, placement: Placement, remaining_steps: int, until_s: float
) -> float:
    """USD that whoever pays will have paid for the placement when its steps are done, or at `until_s` (epoch seconds)
    if that comes first: electricity where the GPUs are owned, rent where they are rented, and egress.

    Where no price of electricity is known it is 0, as it is billed. A placement on what is no longer in the cluster
    costs nothing that could be told.
    """
    cluster = snapshot.cluster
    if any(
        segment.gpu_type not in cluster.gpu_types or (segment.region, segment.gpu_type) not in cluster.pools
        for segment in placement.segments
    ):
        return 0.0
    evaluation = evaluate(spec, cluster, placement.segments, placement.cuts)
    duration_s = min(remaining_steps * evaluation.iteration_s, max(0.0, until_s - snapshot.now_s))
    powers_w = cost.segment_powers_w(evaluation.placement, evaluation.busy_fraction, cluster.gpu_types)
    parts = []
    for segment, power_w in zip(placement.segments, powers_w, strict=True):
        pool = cluster.pools[segment.region, segment.gpu_type]
        if pool.ownership is Ownership.RENTED:
            parts.append(cost.rent_usd(segment.gpus, duration_s, pool.rent_usd_per_gpu_hour))
            continue
        price = forecast(snapshot.electricity.get(segment.region))
        if price is not None:
            kilowatts = cost.facility_kw(segment.gpus, power_w, cluster.regions[segment.region].pue)
            usd_s = price.integral(snapshot.now_s, snapshot.now_s + duration_s)
            parts.append(kilowatts * usd_s / cost.SECONDS_PER_HOUR)
    steps = duration_s / evaluation.iteration_s
    sent = steps * cost.egress_bytes_per_iteration(boundary_bytes(spec), spec.training.micro_batches)
    directions = [ends for cut in placement.cuts for ends in ((cut.src, cut.dst), (cut.dst, cut.src))]
    parts += [
        cost.egress_usd(sent, cluster.links[ends].egress_usd_per_gb)
        for ends in directions
        if ends in cluster.links
    ]
    return math.fsum(parts)
