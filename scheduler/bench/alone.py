"""What a job comes to at the very least when it has the cluster to itself: figures that no policy can beat.

An iteration takes no less than the slowest way through any one stage: the forwards and backwards of the stages before
it, then all its own micro-batches, whatever the order, the window and the network; then the longest gradient
reduction and optimizer step. GPUs draw their idle power for as long as they are held, and the rest for the busy
seconds, which every number of stages has alike. All of it is for clusters of one GPU type, as those of the grids are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate

from scheduler.cluster import Cluster, GpuType
from scheduler.cost import WATTS_PER_KILOWATT, energy_kwh, power_w
from scheduler.errors import InvalidValueError
from scheduler.job import JobSpec
from scheduler.options import fitting_stages
from scheduler.profile import Workload, profiles_of
from scheduler.replay.jobs import ReplayJob


@dataclass(frozen=True, slots=True)
class Option:
    """A job run on so many GPUs from begin to end: at least how long, and at least what energy before PUE."""

    gpus: int
    duration_s: float
    energy_kwh: float

    @property
    def gpu_seconds(self) -> float:
        """What it takes from the others."""
        return self.gpus * self.duration_s


def options_of(job: ReplayJob, cluster: Cluster) -> tuple[Option, ...]:
    """Every number of stages that fits in memory and in the cluster, by GPUs.

    Raises InvalidValueError for a cluster of several GPU types, and where the job fits in no way.
    """
    size = job.spec.parallelism.gpus_per_stage
    slots = sum(pool.gpus // size for pool in cluster.pools.values())
    floors = _floors(job.spec, only_gpu_type(cluster), slots)
    if not floors:
        raise InvalidValueError("job", job.spec.job_id, "a job that fits in the cluster")
    return tuple(
        Option(stages * size, job.actual_steps * floor.iteration_s, job.actual_steps * floor.energy_kwh)
        for stages, floor in floors.items()
    )


def fastest(options: tuple[Option, ...], gpus: float = math.inf) -> Option:
    """The fastest on at most so many GPUs; the smallest where all need more."""
    within = [option for option in options if option.gpus <= gpus]
    return min(within, key=lambda option: option.duration_s) if within else options[0]


def only_gpu_type(cluster: Cluster) -> GpuType:
    """The one GPU type of the cluster. Raises InvalidValueError where there are several."""
    names = sorted({pool.gpu_type for pool in cluster.pools.values()})
    if len(names) != 1:
        raise InvalidValueError("cluster", ", ".join(names), "GPUs of one type")
    return cluster.gpu_types[names[0]]


@dataclass(frozen=True, slots=True)
class _Floor:
    """The least of one iteration."""

    iteration_s: float
    energy_kwh: float


class _Key:
    """A spec as a key: what decides its floors is its workload and the bounds of its stages."""

    __slots__ = ("bounds", "spec", "work")

    def __init__(self, spec: JobSpec) -> None:
        self.spec, self.work = spec, Workload.of(spec)
        self.bounds = (spec.parallelism.stages_min, spec.parallelism.stages_max)

    def __hash__(self) -> int:
        return hash((self.work, self.bounds))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Key) and (self.work, self.bounds) == (other.work, other.bounds)


def _floors(spec: JobSpec, gpu: GpuType, slots: int) -> Mapping[int, _Floor]:
    return {stages: floor for stages, floor in _all_floors(_Key(spec), gpu).items() if stages <= slots}


@lru_cache(maxsize=1024)
def _all_floors(key: _Key, gpu: GpuType) -> Mapping[int, _Floor]:
    spec = key.spec
    first, last = spec.parallelism.stages_min or 1, spec.parallelism.stages_max or spec.model.layers
    return {
        stages: _floor(spec, gpu, stages)
        for stages in range(first, min(last, spec.model.layers) + 1)
        if all(fitting_stages(spec, gpu, stages))
    }


def _floor(spec: JobSpec, gpu: GpuType, stages: int) -> _Floor:
    profiles = profiles_of(Workload.of(spec), (gpu,) * stages)
    micro_batches = spec.training.micro_batches
    paces = [profile.pace_s for profile in profiles]
    before = [0.0, *accumulate(paces)]
    timeline_s = max(lead + micro_batches * pace for lead, pace in zip(before[:-1], paces, strict=True))
    iteration_s = timeline_s + max(profile.sync_s for profile in profiles)
    size = spec.parallelism.gpus_per_stage
    busy_fraction = min(1.0, micro_batches * before[-1] / (stages * iteration_s))
    kilowatts = stages * size * power_w(gpu, busy_fraction) / WATTS_PER_KILOWATT
    return _Floor(iteration_s, energy_kwh(kilowatts, iteration_s))
