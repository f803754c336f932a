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
    return float(sequences * _shape(spec).seq_len / iteration_s)


def model_flops_utilisation(
    spec: Mapping[str, Any], gpus: Sequence[tuple[str, int]], iteration_s: float
) -> float | None:
    """MFU over all `gpus` (type, number), a fraction; None where the peak of a type is not known."""
    try:
        peak = sum(number * peak_flops(name) for name, number in gpus)
    except UnknownPresetError:
        return None
    return mfu(_shape(spec), tokens_per_s(spec, iteration_s), peak) if peak else None


def _shape(spec: Mapping[str, Any]) -> ModelShape:
    return _shape_of(tuple(sorted(spec["model"].items())))


@lru_cache(maxsize=1024)
def _shape_of(model: tuple[tuple[str, Any], ...]) -> ModelShape:
    return ModelSection.model_validate(dict(model)).shape()
