"""How long a job's iteration takes alone, inside one region: what turns a traced duration into steps."""

from __future__ import annotations

import math

from scheduler.cluster import Cluster
from scheduler.evaluate import evaluate
from scheduler.job import JobSpec
from scheduler.placement import Segment


def solo_iteration_s(spec: JobSpec, cluster: Cluster, stages: int) -> float:
    """Iteration time of the job on `stages` stages of one region, whether or not a region is that large.

    On the GPU type of which the cluster has most (by name where two have as many), among those in whose memory the
    job fits; where it fits nowhere, of all.
    """
    totals: dict[str, int] = {}
    region_of: dict[str, str] = {}
    for key in sorted(cluster.pools):
        pool = cluster.pools[key]
        totals[pool.gpu_type] = totals.get(pool.gpu_type, 0) + pool.gpus
        region_of.setdefault(pool.gpu_type, pool.region)
    by_size = sorted(totals, key=lambda name: (-totals[name], name))
    evaluations = [
        evaluate(
            spec, cluster, (Segment(region_of[name], name, stages, spec.parallelism.gpus_per_stage),), ()
        )
        for name in by_size
    ]
    return next((each for each in evaluations if each.fits), evaluations[0]).iteration_s


def steps_of(duration_s: float, iteration_s: float) -> int:
    """The number of steps that take about so long: rounded to the nearest, at least 1."""
    return max(1, math.floor(duration_s / iteration_s + 0.5))
