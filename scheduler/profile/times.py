"""Floating-point operations, and the seconds that they take."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate

from scheduler.cluster import GpuType
from scheduler.errors import InvalidValueError
from scheduler.job import JobSpec, ModelShape, Recompute
from scheduler.parameters import active_parameter_count, active_parameters_of_layer
from scheduler.profile.workload import Workload, split_layers


def flops_per_token(model: ModelShape) -> float:
    """6N + 12·L·h·s: training FLOPs of one token, forward and backward, N the active parameters."""
    return 6.0 * active_parameter_count(model) + 12.0 * model.layers * model.hidden * model.seq_len


def mfu(model: ModelShape, tokens_per_s_per_gpu: float, peak_flops: float) -> float:
    """Model FLOPs utilisation, a fraction: tokens/s × FLOPs a token / peak (arXiv 2204.02311, appendix B)."""
    return tokens_per_s_per_gpu * flops_per_token(model) / peak_flops


def pace_s(spec: JobSpec, gpu: GpuType, stages: int) -> float:
    """Forward + backward of the slowest of `stages` stages, all on that GPU type, for one micro-batch."""
    return _pace_s(Workload.of(spec), gpu, stages)


@lru_cache(maxsize=16384)
def _pace_s(work: Workload, gpu: GpuType, stages: int) -> float:
    share = max(flop_shares(work, split_layers(work.model, stages)))
    return sum(each * share for each in forward_backward_s(work, gpu))


def is_measured_on(work: Workload, gpu: GpuType) -> bool:
    return work.measured is None or all(
        gpu.name in dict(figures) for figures in (work.measured.forward_s, work.measured.backward_s)
    )


def forward_backward_s(work: Workload, gpu: GpuType) -> tuple[float, float]:
    """Seconds of the whole model for one micro-batch on one GPU group, forward and backward."""
    if work.measured is not None:
        if not is_measured_on(work, gpu):
            known = ", ".join(name for name, _ in work.measured.forward_s)
            raise InvalidValueError("profile", gpu.name, f"a GPU type that it was measured on: {known}")
        return dict(work.measured.forward_s)[gpu.name], dict(work.measured.backward_s)[gpu.name]
    tokens = work.micro_batch * work.model.seq_len
    total_s = tokens * flops_per_token(work.model) / (work.tensor * gpu.sustained_flops)
    return total_s / 3, total_s if work.recompute is Recompute.FULL else total_s * 2 / 3


def flop_shares(work: Workload, split: Sequence[int]) -> list[float]:
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
