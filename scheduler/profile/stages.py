"""Stages with all that they cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from scheduler.cluster import GpuType
from scheduler.job import JobSpec
from scheduler.pipeline.plan import laid_out
from scheduler.profile.memory import (
    BYTES_PER_PARAMETER,
    codec_end_bytes,
    layer_bytes_in_flight,
    pending_share_of,
    recomputed_bytes,
    stage_parameters,
)
from scheduler.profile.times import flop_shares, forward_backward_s
from scheduler.profile.workload import Workload, split_layers

GRADIENT_BYTES = 4
OPTIMIZER_BYTES = 30
"""Of an Adam step on one parameter: reads gradient 4, weight and moments 12; writes those 12 and the bf16 weight 2,
and the gradients are read once more for their norm."""
UNLIMITED = 2**31 - 1
"""In-flight limit where a micro-batch in flight takes no memory."""


@dataclass(frozen=True, slots=True)
class StageProfile:
    """One stage on its GPUs. Bytes are those of one GPU.

    `forward_s` and `backward_s` are for one micro-batch. `weight_bytes` is held for the whole run (with full
    recompute also the one layer that is being recomputed), `inflight_bytes` for each micro-batch in flight.
    `sync_s` is what comes after the last backward of an iteration, or of an update within one: the part of the
    gradients' all-reduce that is not hidden, and the optimizer step. `layers` counts whole transformer layers.
    `most_in_flight` is how many micro-batches the rule of its updates allows, whatever the memory. Where two parts of
    the model stand on it, it is both together, and `inflight_bytes` is for each micro-batch in flight on one of them.
    `pending_share` is what is left of `inflight_bytes` between the two parts of a split backward.
    """

    forward_s: float
    backward_s: float
    weight_bytes: float
    inflight_bytes: float
    sync_s: float
    layers: int
    most_in_flight: int = UNLIMITED
    pending_share: float = 1.0

    @property
    def pace_s(self) -> float:
        """Forward + backward of one micro-batch."""
        return self.forward_s + self.backward_s


def stage_profiles(spec: JobSpec, gpus: Sequence[GpuType]) -> tuple[StageProfile, ...]:
    """The stages of a job in pipeline order; `gpus[i]` is the GPU type under stage i, and there are K of them.

    Raises InvalidValueError if there are more stages, or parts of them, than layers, or if the job brings a measured
    profile and a GPU type is not in it.
    """
    return stage_profiles_of(Workload.of(spec), tuple(gpus))


def stage_profiles_of(work: Workload, gpus: tuple[GpuType, ...]) -> tuple[StageProfile, ...]:
    """`stage_profiles` of a workload."""
    return profiles_of(work, gpus) if work.schedule.parts == 1 else profiles_of_both(work, gpus)


@lru_cache(maxsize=4096)
def profiles_of_both(work: Workload, gpus: tuple[GpuType, ...]) -> tuple[StageProfile, ...]:
    """Each stage with both of its parts."""
    (chain,) = laid_out.layout_of(work.schedule, len(gpus)).chains
    parts = profiles_of(work, tuple(gpus[rank] for rank in chain))
    return tuple(
        _together([part for part, on in zip(parts, chain, strict=True) if on == rank])
        for rank in range(len(gpus))
    )


def _together(parts: Sequence[StageProfile]) -> StageProfile:
    return StageProfile(
        forward_s=sum(part.forward_s for part in parts),
        backward_s=sum(part.backward_s for part in parts),
        weight_bytes=sum(part.weight_bytes for part in parts),
        inflight_bytes=max(part.inflight_bytes for part in parts),
        sync_s=sum(part.sync_s for part in parts),
        layers=sum(part.layers for part in parts),
        pending_share=max(part.pending_share for part in parts),
    )


@lru_cache(maxsize=4096)
def profiles_of(work: Workload, gpus: tuple[GpuType, ...]) -> tuple[StageProfile, ...]:
    """The parts that the model is cut into, in their order: `gpus[i]` is under part i. With one part on each stage they
    are the stages."""
    split = split_layers(work.model, len(gpus))
    flops, parameters, layer_bytes = (
        flop_shares(work, split),
        stage_parameters(work, split),
        layer_bytes_in_flight(work),
    )
    layer_bytes, working, codec_bytes = (
        layer_bytes_in_flight(work),
        recomputed_bytes(work),
        codec_end_bytes(work),
    )
    pending_share = pending_share_of(work)
    times = {each: forward_backward_s(work, each) for each in set(gpus)}
    profiles = []
    for stage, gpu in enumerate(gpus):
        forward_s, backward_s = (each * flops[stage] for each in times[gpu])
        profiles.append(
            StageProfile(
                forward_s=forward_s,
                backward_s=backward_s,
                weight_bytes=(BYTES_PER_PARAMETER + work.versions.held_bytes)
                * parameters[stage]
                / work.tensor
                + working
                + codec_bytes * ((stage > 0) + (stage < len(gpus) - 1)),
                inflight_bytes=layer_bytes * split[stage]
                + work.versions.in_flight_bytes * parameters[stage] / work.tensor,
                sync_s=_sync_s(work, parameters[stage], backward_s, split[stage], gpu),
                layers=split[stage],
                most_in_flight=work.versions.most_in_flight or UNLIMITED,
                pending_share=pending_share,
            )
        )
    return tuple(profiles)


def _sync_s(work: Workload, parameters: float, backward_s: float, layers: int, gpu: GpuType) -> float:
    """What ends an iteration on a stage: the all-reduce that is not hidden, and the optimizer step.

    A ring all-reduce over d replicas moves 2(d−1)/d × the fp32 gradients of a GPU. It goes layer by layer (one
    bucket each) beside the last backward (PyTorch DDP, arXiv 2006.15704): the first bucket can leave after 1/n of
    that backward and the last after all of it, so with n equal buckets what sticks out of an all-reduce of a
    seconds and a backward of w is max(a − w·(n−1)/n, a/n), a two-machine flow shop. The optimizer is bound by the
    GPU's memory: `OPTIMIZER_BYTES` a parameter. Fractional d is legal: the formula is continuous in it.
    """
    per_gpu = parameters / work.tensor
    optimizer_s = OPTIMIZER_BYTES * per_gpu * 8 / gpu.memory_bps
    if work.data <= 1:
        return optimizer_s
    volume_bits = 2 * (work.data - 1) / work.data * GRADIENT_BYTES * per_gpu * 8
    reduce_s = volume_bits / gpu.intra_region_bps
    return optimizer_s + max(reduce_s - backward_s * (layers - 1) / layers, reduce_s / layers)
