"""A worker whose memory is full says which stage it was, what it held, and what would fit."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch

from agents.worker.stage import StageModule

pytestmark = pytest.mark.xdist_group("stage-workers")

FULL = Path(__file__).with_name("full_worker.py")
MICRO_BATCHES = 6


def start(gangs: Any, at: int, error: str, **changes: Any) -> tuple[Any, Any, Any]:
    """(the plan, what rank 0 said in the end, its stage)."""
    plan = gangs.plan(2, micro_batches=MICRO_BATCHES, window=[5, 5], micro_batch=4, **changes)
    env = {"FULL_RANK": "0", "FULL_AT": str(at), "FULL_ERROR": error}
    workers = gangs.start(plan, 2, env=env, script=FULL)
    assert workers[0].exit_code() == 13, workers[0].log.read_text()
    assert workers[1].exit_code() == 12, "the other one has lost it"
    assert workers[0].end["cause"] == "out-of-memory"
    return plan, workers[0].end["detail"], StageModule(plan, 0, torch.device("cpu"))


def megabytes(name: str, told: str) -> float:
    match = re.search(rf"{name} ([0-9.]+) MB", told)
    assert match, told
    return float(match[1])


@pytest.mark.parametrize("error", ["cuda", "cpu", "python"])
@pytest.mark.parametrize("changes", [{}, {"binding": "hint"}], ids=["torch", "ours"])
def test_it_tells_what_was_held_and_what_would_fit(gangs: Any, error: str, changes: dict[str, Any]) -> None:
    """In the second iteration, at its fifth forward: four micro-batches are in flight, and all else is there."""
    _, told, stage = start(gangs, MICRO_BATCHES + 5, error, **changes)

    weights = sum(parameter.numel() for parameter in stage.parameters()) * 4 / 1e6
    assert "stage 0 of 2 (layers 0 to 1, embedding)" in told
    assert megabytes("weights", told) == pytest.approx(weights, abs=1e-3)
    assert megabytes("optimizer", told) == pytest.approx(2 * weights, abs=1e-3)
    assert "4 micro-batches in flight × " in told
    assert "(window 5)" in told
    assert megabytes("micro-batches in flight ×", told) > 0
    assert "what would fit: a window of at most 3 here, or micro_batch 2, or 4 stages" in told


def test_in_the_first_iteration_it_knows_that_moments_are_still_to_come(gangs: Any) -> None:
    _, told, _ = start(gangs, 5, "cuda")

    assert megabytes("gradients", told) == 0
    assert megabytes("optimizer", told) == 0
    assert "4 micro-batches in flight" in told
    assert re.search(r"what would fit: a window of at most [12] here", told), told


def test_before_any_forward_it_says_that_it_cannot_tell(gangs: Any) -> None:
    _, told, _ = start(gangs, 1, "cuda")

    assert "no micro-batch had come through its forward" in told
    assert "CUDA out of memory" in told
