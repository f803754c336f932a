"""The weight rule that a plan names, made for one stage."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn

from agents.worker.executor.rules.current import Current
from agents.worker.executor.rules.double_buffered import DoubleBuffered
from agents.worker.executor.rules.feedback import ErrorFeedback
from agents.worker.executor.rules.flush import Flush
from agents.worker.executor.rules.predicted import Predicted
from agents.worker.executor.rules.rollback import GuardedUpdate
from agents.worker.executor.rules.stashed import Stashed
from agents.worker.executor.rules.update import Average, Update
from agents.worker.executor.weights import WeightRule

RuleName = Literal["flush", "current", "predicted", "double-buffered", "stashed"]
"""The names of the planner's weight rules (scheduler.pipeline.plan.ir.WeightRule)."""

PATIENCE = 8
"""Updates in a row that PACI takes back beyond those that were in flight, before it gives up."""


@dataclass(frozen=True, slots=True)
class RuleChoice:
    """A rule and its settings. All but `flush` change what is learned, so a person chooses them, never a planner."""

    name: RuleName
    every: int = 1
    """Micro-batches an update, of the rules that update within an iteration."""
    error_feedback: float = 0.0
    """Strength c of the correction of `double-buffered`; 0: none, 1: as published."""

    def __post_init__(self) -> None:
        if self.every < 1:
            raise ValueError(f"update_every is {self.every}: it must be 1 micro-batch an update or more")
        if self.name == "flush" and self.every != 1:
            raise ValueError(f"update_every is {self.every}: flush updates once an iteration, leave it out")
        if self.error_feedback and self.name != "double-buffered":
            raise ValueError(
                f"error_feedback is {self.error_feedback} with {self.name}: the correction is for the one "
                "step that double-buffered is late"
            )


def weight_rule(
    choice: RuleChoice,
    layers: Sequence[nn.Module],
    optimizer: torch.optim.Optimizer,
    average: Average,
    *,
    micro_batches: int,
    in_flight: int,
    tell: Callable[[str], None] = print,
) -> WeightRule:
    """The rule for a stage of these layers, in iterations of `micro_batches` with at most `in_flight` under way.

    `tell` is given a line where the rule takes an update back. Raises ValueError for settings that do not suit the
    iteration.
    """
    if micro_batches % choice.every:
        raise ValueError(
            f"update_every is {choice.every} with {micro_batches} micro-batches: it must divide them, "
            "or the last ones would be in no update"
        )
    every = choice.every
    plain = Update(layers, optimizer, optimizer, average)
    match choice.name:
        case "flush":
            return Flush(plain)
        case "current":
            patience = PATIENCE + in_flight
            guarded = GuardedUpdate(layers, optimizer, optimizer, average, patience, tell)
            return Current(guarded, every, in_flight)
        case "predicted":
            return Predicted(plain, every, in_flight)
        case "stashed":
            return Stashed(plain, every, in_flight)
        case "double-buffered" if choice.error_feedback:
            feedback = ErrorFeedback(optimizer, plain.parameters, choice.error_feedback)
            return DoubleBuffered(Update(layers, optimizer, feedback, average), every, in_flight)
        case "double-buffered":
            return DoubleBuffered(plain, every, in_flight)
