"""Steps that run one into the other on a rank alone: in which order, with which losses and rates, and how they end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import pytest
import torch
from torch import Tensor
from torch.distributed import ProcessGroup

from agents.worker.busy import BusyMeter
from agents.worker.executor.messages import Messages
from agents.worker.executor.pipeline import PipelineExecutor
from agents.worker.executor.rank_plan import RankPlan, windowed
from agents.worker.executor.rules.choice import RuleChoice, weight_rule
from agents.worker.executor.stage_work import StageWork
from agents.worker.executor.steps import Batch
from agents.worker.model import cross_entropy
from tests.given_steps import GivenSteps
from tests.unit.worker.rules.tiny import CPU, adamw, alone, batch, largest_difference, stage_modules, train

M = 4
EVERY = 2


def batches(steps: int) -> list[Batch]:
    """As many micro-batches of two sequences a step as `tiny.train` has, and the same."""
    parts = [[batch(step * M + each) for each in range(M)] for step in range(steps)]
    return [
        (torch.cat([inputs for inputs, _ in step]), torch.cat([targets for _, targets in step]))
        for step in parts
    ]


def executor(cap: int, binding: str = "strict") -> tuple[PipelineExecutor, list[Tensor]]:
    """A rank that has all layers, with `cap` micro-batches in flight, under PACI; and its weights."""
    (stage,) = stage_modules([4])
    rule = weight_rule(
        RuleChoice("current", EVERY),
        [layer for _, layer in stage.named_layers()],
        adamw(stage),
        alone,
        micro_batches=M,
        in_flight=cap,
    )
    plan = RankPlan(
        0, (0,), windowed(0, cap, M), (cap,), M, "hint" if binding == "hint" else "strict", "current", True
    )
    meter = BusyMeter(CPU)
    work = {0: StageWork(stage, cross_entropy, rule, meter)}
    messages = Messages(cast(ProcessGroup, None), plan, {})  # nothing leaves the rank
    return PipelineExecutor(plan, work, messages, None, meter), [each.data for each in stage.parameters()]


@pytest.mark.parametrize("binding", ["strict", "hint"])
@pytest.mark.parametrize("cap", [1, 3, 4, 7])
def test_it_learns_what_one_long_iteration_learns_to_the_last_bit(cap: int, binding: str) -> None:
    steps = 5
    runs, weights = executor(cap, binding)
    given = GivenSteps(runs, batches(steps))

    given.run()

    whole = train(RuleChoice("current", EVERY), steps * M, window=(cap,), cut=[4])
    assert largest_difference(weights, whole.weights) == 0.0
    assert [loss.item() for losses in given.losses for loss in losses] == whole.losses
    assert [len(losses) for losses in given.losses] == [M] * steps
    assert [each for trace in given.traces for each in trace] == list(windowed(0, cap, steps * M))


def test_a_stage_turns_to_a_step_once_it_has_gone_backward_in_the_one_before() -> None:
    runs, _ = executor(cap=3)
    given = _Turning(runs, batches(3))

    given.run()

    assert given.turns == [(0, 1), (0, 2), (0, 3)]
    assert given.computed_at_turn == ["0B3", "0B7", "0B11"]


class _Turning(GivenSteps):
    def __init__(self, runs: PipelineExecutor, batches: Sequence[Batch]) -> None:
        super().__init__(runs, batches)
        self.computed_at_turn: list[str] = []

    def turn(self, stage: int, step: int) -> None:
        super().turn(stage, step)
        self.computed_at_turn.append(str(self._executor.trace[-1]))


class _Undecided(GivenSteps):
    """Whoever does not wait is told nothing."""

    def __init__(self, runs: PipelineExecutor, batches: Sequence[Batch]) -> None:
        super().__init__(runs, batches)
        self.waited_after: list[int] = []

    def follows(self, wait: bool) -> bool | None:
        if not wait:
            return None
        self.waited_after.append(sum(map(len, self.traces)) + len(self._executor.trace))
        return super().follows(wait)


@pytest.mark.parametrize(
    ("binding", "after"),
    [
        # The order of a window depends on it once its next forward would be of the next step.
        ("strict", [6, 14]),
        # A hint has nothing left to run.
        ("hint", [8, 16]),
    ],
)
def test_a_rank_waits_for_the_word_only_where_it_cannot_go_on(binding: str, after: list[int]) -> None:
    runs, weights = executor(2, binding)
    given = _Undecided(runs, batches(2))

    given.run()

    assert given.waited_after == after
    if binding == "strict":
        whole = train(RuleChoice("current", EVERY), 2 * M, window=(2,), cut=[4])
        assert largest_difference(weights, whole.weights) == 0.0


def test_after_the_pipeline_was_emptied_micro_batches_count_from_the_start() -> None:
    runs, weights = executor(cap=3)
    given = batches(4)
    for part in (given[:2], given[2:]):
        GivenSteps(runs, part).run()

    in_two = train(RuleChoice("current", EVERY), 2 * M, window=(3,), cut=[4], iterations=2)
    assert largest_difference(weights, in_two.weights) == 0.0
