"""What the study compares: the same updates of the same sequences, under each weight rule.

Every update is of `SEQUENCES` sequences. A pipeline of four stages is one-layer stages under 1F1B's caps; a uniform
delay of 3 is one stage of all layers with four micro-batches in flight.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from agents.worker.executor.rules.choice import RuleChoice

SEQUENCES = 16
LAYERS = 4
PIPELINE = (4, 3, 2, 1)
UNIFORM = (4,)

OptimizerName = Literal["adamw", "muon"]


@dataclass(frozen=True, slots=True)
class Case:
    """One way to train. `window` has each stage's cap; the layers are shared out evenly."""

    name: str
    optimizer: OptimizerName
    rule: RuleChoice
    window: tuple[int, ...] = PIPELINE
    micro_batches: int = 4
    """Micro-batches of an update."""

    @property
    def is_synchronous(self) -> bool:
        return self.rule.name == "flush"

    def micro_batches_an_iteration(self, updates: int) -> int:
        """Synchronous updates are iterations; the others are all in one, so that the pipeline never empties."""
        return self.micro_batches * (1 if self.is_synchronous else updates)


def cases() -> list[Case]:
    """All of them, the synchronous one of each optimizer first."""
    found = []
    optimizers: tuple[OptimizerName, ...] = ("adamw", "muon")
    for optimizer in optimizers:
        found += [
            Case(f"{optimizer} synchronous", optimizer, RuleChoice("flush")),
            Case(f"{optimizer} 2BW", optimizer, RuleChoice("double-buffered", 4)),
            Case(f"{optimizer} 2BW with error feedback", optimizer, RuleChoice("double-buffered", 4, 1.0)),
            Case(f"{optimizer} PACI a=4", optimizer, RuleChoice("current", 4)),
        ]
        for place, window in (("", PIPELINE), (" uniform delay 3", UNIFORM)):
            found += [
                Case(f"{optimizer} PACI a=1{place}", optimizer, RuleChoice("current"), window, 1),
                Case(f"{optimizer} stashing{place}", optimizer, RuleChoice("stashed"), window, 1),
                Case(f"{optimizer} prediction{place}", optimizer, RuleChoice("predicted"), window, 1),
            ]
    return found
