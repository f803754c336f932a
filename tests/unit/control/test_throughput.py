"""Tokens a second and MFU of a job, from what its iterations take."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scheduler.presets import model, peak_flops
from scheduler.profile import flops_per_token
from service.throughput import model_flops_utilisation, tokens_per_s

SPEC = {
    "model": {"preset": "llama-3-8b", "seq_len": 4096},
    "training": {"micro_batch": 2, "micro_batches": 8},
    "parallelism": {"data": 4},
}


def test_tokens_are_those_of_all_replicas() -> None:
    assert tokens_per_s(SPEC, 2.0) == 2 * 8 * 4 * 4096 / 2.0


def test_mfu_is_of_the_peak_of_all_gpus_of_whatever_type() -> None:
    gpus = [("H100", 8), ("A100-80GB", 8)]
    peak = 8 * peak_flops("H100") + 8 * peak_flops("A100-80GB")
    shape = replace(model("llama-3-8b"), seq_len=4096)
    expected = tokens_per_s(SPEC, 2.0) * flops_per_token(shape) / peak
    assert model_flops_utilisation(SPEC, gpus, 2.0) == pytest.approx(expected)


@pytest.mark.parametrize("gpu_type", ["a-gpu-of-our-own", "cpu-slot"])
def test_a_peak_that_is_not_known_is_not_guessed(gpu_type: str) -> None:
    assert model_flops_utilisation(SPEC, [("H100", 8), (gpu_type, 1)], 2.0) is None
