"""What a stage of a job costs on a GPU type: seconds, bytes of memory, bytes that leave it.

Either from the shape of the model and what the GPU sustains, or from what the user measured (`spec.profile`).
The formulas, with h hidden, s sequence length, b micro-batch, L layers, a heads, t tensor-parallel size:

- time of a micro-batch, forward + backward: b·s·(6N + 12·L·h·s) / (t × sustained FLOP/s), N the parameters that are
  active for a token (PaLM, arXiv 2204.02311, appendix B; non-causal, as MFU is published). Forward : backward is
  1 : 2; full recompute repeats the forward, hence 1 : 3 and 4/3 of the time;
- memory of a GPU: 18 bytes a parameter (bf16 weight 2, fp32 gradient 4, Adam's fp32 weight and two moments 12:
  Megatron-LM's figure without a sharded optimizer), and the activations of Korthikanti et al. (arXiv 2205.05198), or
  of the built-in worker's layers, for each micro-batch in flight; 5 % of the memory stays free.

Every function depends on its arguments alone; results are memoised in bounded caches.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate

from scheduler.activations import builtin_layer_bytes, builtin_pending_bytes, layer_activation_bytes
from scheduler.cluster import GpuType
from scheduler.errors import InvalidValueError
from scheduler.job import (
    WEIGHTS_ALONE,
    JobSpec,
    MeasuredProfile,
    ModelShape,
    Recompute,
    Schedule,
    WeightVersions,
)
from scheduler.parameters import (
    active_parameter_count,
    active_parameters_of_layer,
    layer_parameters,
    parameter_count,
)
from scheduler.pipeline.plan import laid_out
from scheduler.pipeline.plan.ir import LowRank
from scheduler.pipeline.schedules import strict_window

__all__ = [
    "StageProfile",
    "Workload",
    "active_parameter_count",
    "boundary_bytes",
    "flops_per_token",
    "in_flight_limit",
    "in_flight_room",
    "k_min",
    "layer_parameters",
    "mfu",
    "pace_s",
    "parameter_count",
    "split_layers",
    "stage_profiles",
]

BYTES_PER_PARAMETER = 18
GRADIENT_BYTES = 4
TOKEN_ID_BYTES = 4
PROJECTOR_ELEMENT_BYTES = 4
OPTIMIZER_BYTES = 30
"""Of an Adam step on one parameter: reads gradient 4, weight and moments 12; writes those 12 and the bf16 weight 2,
and the gradients are read once more for their norm."""
USABLE_MEMORY = 0.95
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


@dataclass(frozen=True, slots=True)
class _Measured:
    """A MeasuredProfile that can be a key: the same figures, ordered."""

    forward_s: tuple[tuple[str, float], ...]
    backward_s: tuple[tuple[str, float], ...]
    activation_bytes: float
    stage_memory_bytes: float
    inflight_bytes: float

    @classmethod
    def of(cls, profile: MeasuredProfile) -> _Measured:
        return cls(
            tuple(sorted(profile.forward_s.items())),
            tuple(sorted(profile.backward_s.items())),
            profile.activation_bytes,
            profile.stage_memory_bytes,
            profile.inflight_bytes,
        )


@dataclass(frozen=True, slots=True)
class Workload:
    """All of a job that decides how long its iteration takes, and nothing else: the key of every cache."""

    model: ModelShape
    micro_batch: int
    micro_batches: int
    bytes_per_element: int
    schedule: Schedule
    recompute: Recompute
    tensor: int
    data: float
    measured: _Measured | None
    splits_backward: bool = False
    codec: LowRank | None = None
    versions: WeightVersions = WEIGHTS_ALONE
    update_every: int | None = None
    builtin_layers: bool = False
    ready_first: bool = False

    @property
    def keeps_full(self) -> bool:
        """Whether iterations run one into the other: weights change within them, and nothing else between them.

        GPipe ends one before the next begins, whatever its updates: it would have every micro-batch wait for those
        before it.
        """
        return self.update_every is not None and self.codec is None and self.schedule is not Schedule.GPIPE

    @property
    def updates(self) -> int:
        """Of each stage in an iteration."""
        return 1 if self.update_every is None else self.micro_batches // self.update_every

    @classmethod
    def of(cls, spec: JobSpec) -> Workload:
        """The workload of a job. Jobs that differ in steps, name or owner alone have the same one."""
        training, parallelism = spec.training, spec.parallelism
        return cls(
            spec.model,
            training.micro_batch,
            training.micro_batches,
            training.bytes_per_element,
            training.schedule,
            training.recompute,
            parallelism.tensor,
            parallelism.data,
            None if spec.profile is None else _Measured.of(spec.profile),
            training.splits_backward and training.schedule in (Schedule.AUTO, Schedule.GENERATED),
            parallelism.codec,
            training.versions,
            training.update_every,
            training.builtin_layers,
            training.ready_first,
        )


def split_layers(model: ModelShape, stages: int) -> tuple[int, ...]:
    """Whole layers of each stage: ⌊L/K⌋, and one more for the last L mod K stages.

    The larger stages stand last because 1F1B keeps fewer micro-batches in flight there. As the head is there too,
    the slowest stage always has ⌈L/K⌉ layers: the pace changes only where ⌈L/K⌉ does.
    Raises InvalidValueError for less than one layer a stage.
    """
    if not 1 <= stages <= model.layers:
        raise InvalidValueError("stages", stages, f"1 … layers = {model.layers}")
    least, larger = divmod(model.layers, stages)
    return (least,) * (stages - larger) + (least + 1,) * larger


def layers_before(model: ModelShape, stages: int, stage: int) -> int:
    """Layers of the first so many of that many stages: the sum of `split_layers` up to there."""
    least, larger = divmod(model.layers, stages)
    return least * stage + max(0, stage - (stages - larger))


def stage_profiles(spec: JobSpec, gpus: Sequence[GpuType]) -> tuple[StageProfile, ...]:
    """The stages of a job in pipeline order; `gpus[i]` is the GPU type under stage i, and there are K of them.

    Raises InvalidValueError if there are more stages, or parts of them, than layers, or if the job brings a measured
    profile and a GPU type is not in it.
    """
    return stage_profiles_of(Workload.of(spec), tuple(gpus))


def boundary_bytes(spec: JobSpec) -> float:
    """A: bytes that cross a stage boundary per micro-batch and direction, all data replicas together.

    data × micro_batch × seq × hidden × bytes per element, or as measured. With a codec, that × rank / hidden and the
    ids of the tokens, in both directions alike though they only go forward; and of the projector, which goes forward
    once an iteration as its gradient does back, the part of one micro-batch. A pipeline that passes every rank twice
    crosses a boundary more than once.
    """
    return boundary_bytes_of(Workload.of(spec))


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


def pace_s(spec: JobSpec, gpu: GpuType, stages: int) -> float:
    """Forward + backward of the slowest of `stages` stages, all on that GPU type, for one micro-batch."""
    return _pace_s(Workload.of(spec), gpu, stages)


def flops_per_token(model: ModelShape) -> float:
    """6N + 12·L·h·s: training FLOPs of one token, forward and backward, N the active parameters."""
    return 6.0 * active_parameter_count(model) + 12.0 * model.layers * model.hidden * model.seq_len


def mfu(model: ModelShape, tokens_per_s_per_gpu: float, peak_flops: float) -> float:
    """Model FLOPs utilisation, a fraction: tokens/s × FLOPs a token / peak (arXiv 2204.02311, appendix B)."""
    return tokens_per_s_per_gpu * flops_per_token(model) / peak_flops


def boundary_bytes_of(work: Workload) -> float:
    """`boundary_bytes` of a workload."""
    messages = laid_out.messages_a_cut(work.schedule)
    return messages * message_bytes_of(work) + projector_bytes_of(work) / work.micro_batches


def message_bytes_of(work: Workload) -> float:
    """What one message of a micro-batch sends between regions, all data replicas together."""
    model, measured = work.model, work.measured
    uncoded = (
        work.data * work.micro_batch * model.seq_len * model.hidden * work.bytes_per_element
        if measured is None
        else measured.activation_bytes
    )
    if work.codec is None:
        return uncoded
    ids = work.data * work.micro_batch * model.seq_len * TOKEN_ID_BYTES
    return uncoded * work.codec.rank / model.hidden + ids


def widest_rank(spec: JobSpec, most_bytes: float) -> int:
    """The highest rank of a codec with which `boundary_bytes` comes to no more; below 1 where none does, and that of no
    codec where none is needed."""
    work = Workload.of(spec)
    rank_1, rank_2 = (boundary_bytes_of(replace(work, codec=LowRank(rank))) for rank in (1, 2))
    within = math.floor((most_bytes - rank_1) / (rank_2 - rank_1) * (1 + 1e-12)) + 1
    return min(within, work.model.hidden)


def projector_bytes_of(work: Workload) -> float:
    """What a codec sends over a boundary once an iteration, all data replicas together: hidden × rank in fp32, the
    gradient back and the new projector forward. 0 without a codec."""
    if work.codec is None:
        return 0.0
    return work.data * work.model.hidden * work.codec.rank * PROJECTOR_ELEMENT_BYTES


def stage_profiles_of(work: Workload, gpus: tuple[GpuType, ...]) -> tuple[StageProfile, ...]:
    """`stage_profiles` of a workload."""
    return profiles_of(work, gpus) if work.schedule.parts == 1 else _profiles_of_both(work, gpus)


@lru_cache(maxsize=4096)
def _profiles_of_both(work: Workload, gpus: tuple[GpuType, ...]) -> tuple[StageProfile, ...]:
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
    flops, parameters, layer_bytes = _shares(work, split), _stage_parameters(work, split), _layer_bytes(work)
    working, codec_bytes = _recomputed_bytes(work), _codec_end_bytes(work)
    pending_share = _pending_share(work)
    times = {each: _forward_backward_s(work, each) for each in set(gpus)}
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


@lru_cache(maxsize=4096)
def _k_min(work: Workload, gpu: GpuType) -> int | None:
    if not _is_measured_on(work, gpu):
        return None
    usable = USABLE_MEMORY * gpu.memory_bytes * work.tensor
    weights = sum(_stage_parameters(work, (work.model.layers,))) * BYTES_PER_PARAMETER
    # No K below this holds the weights: the search need not begin at 1.
    profiles_of_stages = (profiles_of if work.schedule.parts == 1 else _profiles_of_both).__wrapped__
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
    share = _pending_share(work)
    if work.schedule is Schedule.GPIPE:
        return (work.micro_batches,) * stages
    if work.schedule is Schedule.ZB_H1:
        most = min(stages, work.micro_batches)
        return tuple(cap + (most - cap) * share for cap in strict_window(stages, work.micro_batches))
    if work.schedule.parts > 1:
        return laid_out.laid_out(work.schedule, stages, work.micro_batches).held(share)
    return strict_window(stages, work.micro_batches)


@lru_cache(maxsize=16384)
def _pace_s(work: Workload, gpu: GpuType, stages: int) -> float:
    share = max(_shares(work, split_layers(work.model, stages)))
    return sum(each * share for each in _forward_backward_s(work, gpu))


def _is_measured_on(work: Workload, gpu: GpuType) -> bool:
    return work.measured is None or all(
        gpu.name in dict(figures) for figures in (work.measured.forward_s, work.measured.backward_s)
    )


def _forward_backward_s(work: Workload, gpu: GpuType) -> tuple[float, float]:
    """Seconds of the whole model for one micro-batch on one GPU group, forward and backward."""
    if work.measured is not None:
        if not _is_measured_on(work, gpu):
            known = ", ".join(name for name, _ in work.measured.forward_s)
            raise InvalidValueError("profile", gpu.name, f"a GPU type that it was measured on: {known}")
        return dict(work.measured.forward_s)[gpu.name], dict(work.measured.backward_s)[gpu.name]
    tokens = work.micro_batch * work.model.seq_len
    total_s = tokens * flops_per_token(work.model) / (work.tensor * gpu.sustained_flops)
    return total_s / 3, total_s if work.recompute is Recompute.FULL else total_s * 2 / 3


def _shares(work: Workload, split: Sequence[int]) -> list[float]:
    """The share of each stage in the FLOPs of the whole model; they sum to 1.

    A layer counts its matrices and its attention, the head vocab × hidden, the embedding nothing (a lookup).
    """
    model = work.model
    prefix = _layer_flops(model)
    ends = list(accumulate(split))
    flops = [prefix[end] - prefix[end - layers] for end, layers in zip(ends, split, strict=True)]
    flops[-1] += 6.0 * model.vocab * model.hidden
    total = prefix[-1] + 6.0 * model.vocab * model.hidden
    return [each / total for each in flops]


@lru_cache(maxsize=1024)
def _layer_flops(model: ModelShape) -> tuple[float, ...]:
    """FLOPs a token of the first 0, 1, …, L layers."""
    attention = 12.0 * model.hidden * model.seq_len
    layers = (6.0 * active_parameters_of_layer(model, each) + attention for each in range(model.layers))
    return tuple(accumulate(layers, initial=0.0))


def _stage_parameters(work: Workload, split: Sequence[int]) -> list[float]:
    """Parameters that each stage holds, over its tensor ranks. A tied embedding stands on both end stages."""
    model = work.model
    prefix = _layer_parameters(model)
    ends = list(accumulate(split))
    held = [float(prefix[end] - prefix[end - layers]) for end, layers in zip(ends, split, strict=True)]
    table = model.vocab * model.hidden
    held[0] += table + (model.seq_len * model.hidden if model.learned_positions else 0)
    held[-1] += model.hidden + (0 if model.tied_embeddings and len(held) == 1 else table)
    if work.measured is None:
        return held
    scale = work.measured.stage_memory_bytes / (BYTES_PER_PARAMETER * sum(held))
    return [each * scale for each in held]


@lru_cache(maxsize=1024)
def _layer_parameters(model: ModelShape) -> tuple[int, ...]:
    return tuple(accumulate((layer_parameters(model, each) for each in range(model.layers)), initial=0))


def _layer_bytes(work: Workload) -> float:
    """Bytes that a layer keeps on one GPU for each micro-batch in flight."""
    if work.measured is not None:
        return work.measured.inflight_bytes / (work.model.layers * work.tensor)
    return _kept_bytes(work, work.recompute)


def _pending_share(work: Workload) -> float:
    """The part of `_layer_bytes` that stays between the two parts of a split backward: all of it, where the layers are
    not the built-in worker's, and where a rank that keeps to no order may have all in flight whole."""
    if work.measured is not None or not work.builtin_layers or work.ready_first:
        return 1.0
    of_layer = work.model, work.micro_batch, work.recompute, work.bytes_per_element
    return builtin_pending_bytes(*of_layer) / builtin_layer_bytes(*of_layer)


def _recomputed_bytes(work: Workload) -> float:
    """Full recompute rebuilds one layer at a time, whole; a stage holds it once, however many are in flight."""
    if work.measured is not None or work.recompute is not Recompute.FULL:
        return 0.0
    return _kept_bytes(work, Recompute.NONE)


def _kept_bytes(work: Workload, recompute: Recompute) -> float:
    """Activations that a layer keeps of one micro-batch on one GPU, by the formula of the job's layers."""
    if work.builtin_layers:
        return builtin_layer_bytes(work.model, work.micro_batch, recompute, work.bytes_per_element)
    return layer_activation_bytes(
        work.model, work.micro_batch, work.tensor, recompute, work.bytes_per_element
    )


def _codec_end_bytes(work: Workload) -> float:
    """What one end of a coded boundary holds on a GPU: the projector, and rank numbers for each token it may meet.

    Where the cuts will be is not known here, so every boundary of the job is taken for coded.
    """
    if work.codec is None:
        return 0.0
    return float(BYTES_PER_PARAMETER * work.codec.rank * (work.model.vocab + work.model.hidden))


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
