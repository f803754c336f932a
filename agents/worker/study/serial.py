"""Runs the plan of a pipeline in one process: every rank's actions, in one legal order, under the same weight rules.

What a stage computes depends on its own order and on the messages alone, so any order that respects both gives what
the ranks would give that run beside each other, to the last bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from agents.worker.busy import BusyMeter
from agents.worker.executor.messages import Tensors
from agents.worker.executor.rank_plan import Action
from agents.worker.executor.stage_work import Loss, StageWork
from agents.worker.executor.weights import WeightRule

Batch = Callable[[int], tuple[Tensor, Tensor]]
"""The inputs of the first stage and the targets of the last, of a micro-batch."""


class SerialPipeline:
    """Stages in a line, each with its rule. Which rank an action stands on does not matter, only its place there."""

    def __init__(self, stages: Sequence[nn.Module], rules: Sequence[WeightRule], loss: Loss) -> None:
        self._last = len(stages) - 1
        meter = BusyMeter(torch.device("cpu"))
        self._work = [
            StageWork(stage, loss if number == self._last else None, rule, meter)
            for number, (stage, rule) in enumerate(zip(stages, rules, strict=True))
        ]

    def iteration(self, order: Sequence[Sequence[Action]], batch: Batch) -> list[float]:
        """Run one iteration; the losses of its micro-batches. Raises ValueError if ranks wait for each other."""
        run = _Iteration(self._work, batch)
        position = [0] * len(order)
        while waiting := [
            actions[at] for actions, at in zip(order, position, strict=True) if at < len(actions)
        ]:
            before = list(position)
            for rank, actions in enumerate(order):
                while position[rank] < len(actions) and run.ready(actions[position[rank]]):
                    run.compute(actions[position[rank]])
                    position[rank] += 1
            if position == before:
                said = ", ".join(map(str, waiting))
                raise ValueError(f"ranks wait for each other at {said}: no order of theirs is legal")
        for work in self._work:
            work.rule.mean_gradients()
            work.rule.emptied()
        return [loss for _, loss in sorted(run.losses.items())]


class _Iteration:
    """What is under way, by stage and micro-batch."""

    def __init__(self, work: Sequence[StageWork], batch: Batch) -> None:
        self._work, self._batch, self._last = work, batch, len(work) - 1
        self._inputs: dict[tuple[int, int], Tensors] = {}
        self._gradients: dict[tuple[int, int], Tensors | None] = {}
        self._split: set[tuple[int, int]] = set()  # whose I has run and whose W has not
        self.losses: dict[int, float] = {}

    def ready(self, action: Action) -> bool:
        """Whether what an action needs is there."""
        key = action.stage, action.micro_batch
        if action.op == "F":
            return action.stage == 0 or key in self._inputs
        return key in (self._split if action.op == "W" else self._gradients)

    def compute(self, action: Action) -> None:
        """Run an action that is ready."""
        stage, op, micro_batch = action
        work = self._work[stage]
        if op == "F":
            self._forward(work, stage, micro_batch)
        elif op == "W":
            self._split.remove((stage, micro_batch))
            work.weight_gradient(micro_batch)
        else:
            backward = work.backward if op == "B" else work.input_gradient
            gradients = backward(micro_batch, self._gradients.pop((stage, micro_batch)))
            if stage > 0:
                self._gradients[stage - 1, micro_batch] = gradients
            if op == "I":
                self._split.add((stage, micro_batch))

    def _forward(self, work: StageWork, stage: int, micro_batch: int) -> None:
        inputs, targets = self._batch(micro_batch)
        taken = (inputs,) if stage == 0 else self._inputs.pop((stage, micro_batch))
        if stage < self._last:
            self._inputs[stage + 1, micro_batch] = work.forward(micro_batch, taken, None)
            return
        (loss,) = work.forward(micro_batch, taken, targets)
        self.losses[micro_batch] = float(loss.item())
        self._gradients[stage, micro_batch] = None
