"""How fast a job trains, from what its iterations were measured to take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from scheduler.errors import UnknownPresetError
from scheduler.job import ModelShape
from scheduler.presets import peak_flops
from scheduler.profile import mfu
from scheduler.spec.model import ModelSection


def tokens_per_s(spec: Mapping[str, Any], iteration_s: float) -> float:
    """Tokens a second over all data replicas; `spec` is a completed job document."""
    training = spec["training"]
    sequences = training["micro_batch"] * training["micro_batches"] * spec["parallelism"]["data"]
    return float(sequences * spec["model"]["seq_len"] / iteration_s)


def model_flops_utilisation(
    spec: Mapping[str, Any], gpus: Sequence[tuple[str, int]], iteration_s: float
) -> float | None:
    """MFU over all `gpus` (type, number), a fraction; None where the peak of a type is not known."""
    peaks = [_peak(name) for name, _ in gpus]
    if None in peaks:
        return None
    peak = sum(number * each for (_, number), each in zip(gpus, peaks, strict=True) if each is not None)
    return mfu(_shape(spec), tokens_per_s(spec, iteration_s), peak) if peak else None


@lru_cache(maxsize=256)
def _peak(gpu_type: str) -> float | None:
    """FLOP/s; None where it is not known."""
    try:
        return peak_flops(gpu_type)
    except UnknownPresetError:
        return None


def _shape(spec: Mapping[str, Any]) -> ModelShape:
    return _shape_of(tuple(sorted(spec["model"].items())))


@lru_cache(maxsize=1024)
def _shape_of(model: tuple[tuple[str, Any], ...]) -> ModelShape:
    return ModelSection.model_validate(dict(model)).shape()
