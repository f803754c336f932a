"""Steps with given batches, for executors that run without a trainer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from torch import Tensor

from agents.worker.executor.rank_plan import Action
from agents.worker.executor.steps import Batch, Steps


class Runs(Protocol):
    """An executor."""

    trace: list[Action]

    def run(self, steps: Steps) -> None: ...


class GivenSteps:
    """Steps that run one into the other; what came of them."""

    def __init__(self, executor: Runs, batches: Sequence[Batch]) -> None:
        self._executor, self._batches = executor, batches
        self._known = 1
        self.turns: list[tuple[int, int]] = []
        self.losses: list[list[Tensor]] = []
        self.traces: list[list[Action]] = []

    def run(self) -> None:
        self._executor.run(self)

    def batch(self, step: int) -> Batch:
        return self._batches[step]

    def begin(self, step: int) -> None:
        pass

    def follows(self, wait: bool) -> bool | None:
        if self._known == len(self._batches):
            return False
        self._known += 1
        return True

    def turn(self, stage: int, step: int) -> None:
        self.turns.append((stage, step))

    def end(self, step: int, losses: list[Tensor]) -> None:
        self.losses.append(losses)
        self.traces.append(list(self._executor.trace))


def one_step(executor: Runs, inputs: Tensor | None, targets: Tensor | None) -> list[Tensor]:
    """The losses of an iteration by itself."""
    steps = GivenSteps(executor, [(inputs, targets)])
    steps.run()
    return steps.losses[0]
