"""The lower bounds of one world, as figures beside those of the policies."""

from __future__ import annotations

import math
from typing import Final

from scheduler.bench.alone import fastest, options_of
from scheduler.bench.capacity_bound import Demand, capacity_bound, drain_s
from scheduler.bench.cheapest import cheapest_usd
from scheduler.bench.figures import Figures
from scheduler.bench.worlds import World

_INTERVALS: Final = 240
_SHIFT_S: Final = 7 * 86400.0


def bounds_of(world: World) -> Figures:
    """Over the measured jobs: mean JCT of each alone at its fastest and by the two forms of the capacity bound;
    electricity of each at its cheapest, begun at once and in the cheapest hour of the next week."""
    jobs, cluster = world.measured, world.scenario.cluster
    options = [options_of(job, cluster) for job in jobs]
    gpus = sum(pool.gpus for pool in cluster.pools.values())
    demands = [Demand(job.submit_s, choice) for job, choice in zip(jobs, options, strict=True)]
    reach_s = drain_s(demands, gpus)
    capacity = capacity_bound(demands, gpus, reach_s / _INTERVALS, reach_s)
    alone_s = math.fsum(fastest(choice).duration_s for choice in options) / len(jobs)
    return {
        "jobs": len(jobs),
        "jct_alone_s": alone_s,
        "jct_strict_s": max(alone_s, capacity.strict_s),
        "jct_moldable_s": max(alone_s, capacity.moldable_s),
        "electricity_at_once_usd": cheapest_usd(world.scenario, jobs, options, 0.0),
        "electricity_shifted_usd": cheapest_usd(world.scenario, jobs, options, _SHIFT_S),
    }
