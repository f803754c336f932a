"""The plan of one rank: which stages it has and what they compute in which order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

Op = Literal["F", "B", "I", "W", "SEND_F", "RECV_F", "SEND_B", "RECV_B"]
"""torch.distributed.pipelining's letters: forward, whole backward, gradient of the input, of the weights, messages."""

COMPUTING = ("F", "B", "I", "W")


class Action(NamedTuple):
    """One step of a rank: an operation of one stage on one micro-batch (from 0)."""

    stage: int
    op: Op
    micro_batch: int

    def __str__(self) -> str:
        return f"{self.stage}{self.op}{self.micro_batch}"


@dataclass(frozen=True, slots=True)
class RankPlan:
    """One iteration of one rank. `caps` is for every stage of the pipeline the most micro-batches in flight."""

    rank: int
    stage_ranks: tuple[int, ...]
    actions: tuple[Action, ...]
    caps: tuple[int, ...]
    micro_batches: int
    binding: Literal["strict", "hint"]
    weight_rule: str
    is_window: bool
    """Whether the caps alone say what every rank computes; its actions have no messages."""

    @property
    def stages(self) -> tuple[int, ...]:
        """The stages of this rank."""
        return tuple(stage for stage, rank in enumerate(self.stage_ranks) if rank == self.rank)

    @property
    def last_stage(self) -> int:
        """The last of the pipeline."""
        return len(self.stage_ranks) - 1

    @property
    def computations(self) -> tuple[Action, ...]:
        """The actions without their messages."""
        return tuple(action for action in self.actions if action.op in COMPUTING)

    @property
    def for_torch(self) -> bool:
        """Whether torch's runtime executes it: a fixed order, with one version of the weights."""
        return self.binding == "strict" and self.weight_rule == "flush"

    @property
    def has_first(self) -> bool:
        """Whether this rank has the stage that takes the inputs."""
        return self.has(0)

    @property
    def has_last(self) -> bool:
        """Whether this rank has the stage that computes the loss."""
        return self.has(self.last_stage)

    def has(self, stage: int) -> bool:
        """Whether this rank has `stage`; nobody has those before the first and after the last."""
        return 0 <= stage <= self.last_stage and self.stage_ranks[stage] == self.rank


def windowed(stage: int, cap: int, micro_batches: int) -> tuple[Action, ...]:
    """`cap` forwards, then one backward and one forward in turn: 1F1B, GPipe and slack 1F1B differ in the cap."""
    order = [Action(stage, "F", micro_batch) for micro_batch in range(min(cap, micro_batches))]
    for micro_batch in range(micro_batches):
        order.append(Action(stage, "B", micro_batch))
        if cap + micro_batch < micro_batches:
            order.append(Action(stage, "F", cap + micro_batch))
    return tuple(order)
