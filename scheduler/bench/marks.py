"""The lower bounds of one world, as figures beside those of the policies."""

from __future__ import annotations

import math
from typing import Final

from scheduler.bench.alone import fastest, options_of
from scheduler.bench.capacity_bound import Demand, capacity_bound, drain_s
from scheduler.bench.cheapest import cheapest_usd
from scheduler.bench.figures import Figures
from scheduler.bench.worlds import World

_FEW: Final = 64  # jobs; they are looked at to their end, in so many intervals
_INTERVALS: Final = 240
_STEP_S: Final = (
    1800.0  # of a stream of jobs, each looked at for a day, or twice its time alone if that is longer
)
_REACH_S: Final = 86400.0
_SHIFT_S: Final = 7 * 86400.0


def bounds_of(world: World) -> Figures:
    """Over the measured jobs: mean JCT of each alone at its fastest and by the two forms of the capacity bound;
    electricity of each at its cheapest, begun at once and in the cheapest hour of the next week."""
    jobs, cluster = world.measured, world.cluster
    options = [options_of(job, cluster) for job in jobs]
    gpus = sum(pool.gpus for pool in cluster.pools.values())
    if len(jobs) <= _FEW:
        drained_s = drain_s(options, gpus)
        step_s, reaches_s = drained_s / _INTERVALS, [drained_s] * len(jobs)
    else:
        step_s, reaches_s = _STEP_S, [max(_REACH_S, 2 * fastest(choice).duration_s) for choice in options]
    demands = tuple(
        Demand(job.submit_s, choice, reach_s)
        for job, choice, reach_s in zip(jobs, options, reaches_s, strict=True)
    )
    capacity = capacity_bound(demands, gpus, step_s)
    alone_s = math.fsum(fastest(choice).duration_s for choice in options) / len(jobs)
    return {
        "jobs": len(jobs),
        "jct_alone_s": alone_s,
        "jct_strict_s": max(alone_s, capacity.strict_s),
        "jct_moldable_s": max(alone_s, capacity.moldable_s),
        "electricity_at_once_usd": cheapest_usd(world.scenario, jobs, options, 0.0),
        "electricity_shifted_usd": cheapest_usd(world.scenario, jobs, options, _SHIFT_S),
    }
