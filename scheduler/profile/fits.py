"""What fits in the memory of a GPU: micro-batches in flight, and the least number of stages."""

from __future__ import annotations

import math
from functools import lru_cache

from scheduler.cluster import GpuType
from scheduler.job import JobSpec, Schedule
from scheduler.pipeline.plan import laid_out
from scheduler.pipeline.schedules import strict_window
from scheduler.profile.memory import BYTES_PER_PARAMETER, pending_share_of, stage_parameters
from scheduler.profile.stages import StageProfile, profiles_of, profiles_of_both
from scheduler.profile.times import is_measured_on
from scheduler.profile.workload import Workload

USABLE_MEMORY = 0.95


def in_flight_limit(stage: StageProfile, gpu: GpuType) -> int:
    """How many micro-batches a stage can have in flight on that GPU (0: not even its weights leave room), and may by
    the rule of its updates."""
    return int(in_flight_room(stage, gpu))


def in_flight_room(stage: StageProfile, gpu: GpuType) -> float:
    """As `in_flight_limit`, with the part of one for which there is room beside them."""
    room = USABLE_MEMORY * gpu.memory_bytes - stage.weight_bytes
    if room < 0:
        return 0.0
    if stage.inflight_bytes <= 0:
        return float(stage.most_in_flight)
    return min(float(stage.most_in_flight), room / stage.inflight_bytes)


def k_min(spec: JobSpec, gpu: GpuType) -> int | None:
    """The least number of stages that fits in the memory of that GPU type; None if none does.

    What has to fit is the least window of the job's schedule: K − s micro-batches in flight at stage s of strict
    1F1B (to which the slack schedule falls back), all of them for GPipe, what the order holds where it is no window.
    None as well if the job brings a measured profile that lacks this GPU type.
    """
    return _k_min(Workload.of(spec), gpu)


@lru_cache(maxsize=4096)
def _k_min(work: Workload, gpu: GpuType) -> int | None:
    if not is_measured_on(work, gpu):
        return None
    usable = USABLE_MEMORY * gpu.memory_bytes * work.tensor
    weights = sum(stage_parameters(work, (work.model.layers,))) * BYTES_PER_PARAMETER
    # No K below this holds the weights: the search need not begin at 1.
    profiles_of_stages = (profiles_of if work.schedule.parts == 1 else profiles_of_both).__wrapped__
    for stages in range(max(1, math.ceil(weights / usable)), work.model.layers + 1):
        if not can_have(work, stages):
            continue
        profiles = profiles_of_stages(work, (gpu,) * stages)
        needs = least_window(work, stages)
        if all(in_flight_room(each, gpu) >= need for each, need in zip(profiles, needs, strict=True)):
            return stages
    return None


def can_have(work: Workload, stages: int) -> bool:
    """Whether its schedule can have so many stages."""
    return laid_out.is_possible(work.schedule, work.model.layers, stages, work.micro_batches)


def least_window(work: Workload, stages: int) -> tuple[float, ...]:
    """How many micro-batches must fit in memory for the job to run at all, stage by stage.

    Of two parts together; a micro-batch between the two parts of its backward counts as its `pending_share`. Raises
    InvalidValueError for a number of stages that the schedule cannot have.
    """
    share = pending_share_of(work)
    if work.schedule is Schedule.GPIPE:
        return (work.micro_batches,) * stages
    if work.schedule is Schedule.ZB_H1:
        most = min(stages, work.micro_batches)
        return tuple(cap + (most - cap) * share for cap in strict_window(stages, work.micro_batches))
    if work.schedule.parts > 1:
        return laid_out.laid_out(work.schedule, stages, work.micro_batches).held(share)
    return strict_window(stages, work.micro_batches)
