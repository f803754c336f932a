"""What every number of stages worth having comes to for a job inside one region: the same in all of them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from scheduler.cluster import Cluster, Ownership
from scheduler.cost import WATTS_PER_KILOWATT, segment_powers_w
from scheduler.evaluate import evaluate
from scheduler.options import Candidate, Demand
from scheduler.placement import Segment
from scheduler.restart import storage_s

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Ladder:
    """The rungs K_min … K* of a job on GPUs of one type, ascending. All arrays have one entry a rung."""

    candidate: Candidate
    gpu_type: str
    stages: Integers
    gpus: Integers
    iteration_s: Floats
    draw_kw: Floats
    """Mean draw of the whole placement before PUE."""
    storage_s: Floats
    """How long its stages take to write, or to read, the state of the job."""
    need_bps: Integers
    """What a cut needs so as not to set the pace."""
    owned_part: float
    """Of the GPUs that it may stand on."""
    rent_usd_per_gpu_hour: float
    """In the mean over the same GPUs; nothing for those that are owned."""

    def only(self, rung: int) -> Ladder:
        """The ladder of one of its rungs."""
        one = slice(rung, rung + 1)
        return replace(
            self,
            stages=self.stages[one],
            gpus=self.gpus[one],
            iteration_s=self.iteration_s[one],
            draw_kw=self.draw_kw[one],
            storage_s=self.storage_s[one],
            need_bps=self.need_bps[one],
        )

    def storage_of(self, stages: int) -> float:
        """`storage_s` of the rung with so many stages."""
        return float(self.storage_s[int(np.searchsorted(self.stages, stages))])


_LADDERS: WeakKeyDictionary[Demand, tuple[Ladder, ...]] = WeakKeyDictionary()


def ladders_of(demand: Demand, cluster: Cluster) -> tuple[Ladder, ...]:
    """A ladder for each GPU type that can hold the job alone; made once for a demand."""
    known = _LADDERS.get(demand)
    if known is None:
        single = [each for each in demand.candidates if len(each.stage_counts.gpu_types) == 1]
        made = (_ladder(demand, candidate, cluster) for candidate in single)
        known = _LADDERS[demand] = tuple(ladder for ladder in made if ladder is not None)
    return known


def _ladder(demand: Demand, candidate: Candidate, cluster: Cluster) -> Ladder | None:
    gpu_type = candidate.stage_counts.gpu_types[0]
    region = candidate.pools[0][0]
    stages, iteration_s, draw_kw, storage = [], [], [], []
    for count in candidate.stage_counts.counts[: candidate.cap + 1]:
        segment = Segment(region, gpu_type, count, demand.gpus_per_stage)
        evaluation = evaluate(demand.spec, cluster, (segment,), ())
        if not evaluation.fits:
            continue
        (power_w,) = segment_powers_w(evaluation.placement, evaluation.busy_fraction, cluster.gpu_types)
        stages.append(count)
        iteration_s.append(evaluation.iteration_s)
        draw_kw.append(segment.gpus * power_w / WATTS_PER_KILOWATT)
        storage.append(storage_s(demand.spec, cluster, evaluation.placement))
    if not stages:
        return None
    counts, needs = np.array(stages, dtype=np.int64), candidate.stage_counts.need_bps
    pools = [cluster.pools[key] for key in candidate.pools]
    gpus, rented = sum(pool.gpus for pool in pools), [p for p in pools if p.ownership is Ownership.RENTED]
    return Ladder(
        candidate,
        gpu_type,
        counts,
        counts * demand.gpus_per_stage,
        np.array(iteration_s),
        np.array(draw_kw),
        np.array(storage),
        np.array([needs[candidate.stage_counts.index(each)] for each in stages], dtype=np.int64),
        1.0 - sum(pool.gpus for pool in rented) / gpus,
        math.fsum(pool.gpus * pool.rent_usd_per_gpu_hour for pool in rented) / gpus,
    )
