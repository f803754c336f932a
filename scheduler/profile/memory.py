"""What a stage holds in the memory of a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate

from scheduler.activations import builtin_layer_bytes, builtin_pending_bytes, layer_activation_bytes
from scheduler.job import ModelShape, Recompute
from scheduler.parameters import layer_parameters
from scheduler.profile.workload import Workload

BYTES_PER_PARAMETER = 18


def stage_parameters(work: Workload, split: Sequence[int]) -> list[float]:
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


def layer_bytes_in_flight(work: Workload) -> float:
    """Bytes that a layer keeps on one GPU for each micro-batch in flight."""
    if work.measured is not None:
        return work.measured.inflight_bytes / (work.model.layers * work.tensor)
    return _kept_bytes(work, work.recompute)


def pending_share_of(work: Workload) -> float:
    """The part of `layer_bytes_in_flight` that stays between the two parts of a split backward: all of it, where the
    layers are not the built-in worker's, and where a rank that keeps to no order may have all in flight whole."""
    if work.measured is not None or not work.builtin_layers or work.ready_first:
        return 1.0
    of_layer = work.model, work.micro_batch, work.recompute, work.bytes_per_element
    return builtin_pending_bytes(*of_layer) / builtin_layer_bytes(*of_layer)


def recomputed_bytes(work: Workload) -> float:
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


def codec_end_bytes(work: Workload) -> float:
    """What one end of a coded boundary holds on a GPU: the projector, and rank numbers for each token it may meet.

    Where the cuts will be is not known here, so every boundary of the job is taken for coded.
    """
    if work.codec is None:
        return 0.0
    return float(BYTES_PER_PARAMETER * work.codec.rank * (work.model.vocab + work.model.hidden))
