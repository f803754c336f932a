"""The plan of one rank: which stages it has and what they compute in which order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
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

    def iteration(self, number: int) -> Iterator[Action]:
        """What the rank computes in iteration `number` (from 0), micro-batches numbered on from those before."""
        return shifted(self.computations, number * self.micro_batches)

    def order_of(self, number: int) -> Iterator[Action]:
        """What its order says between the first forward of iteration `number` and that of the next.

        Within a window, backwards of the iteration before are among it, and the last of its own are not.
        """
        if not self.is_window:
            return self.iteration(number)
        first = number * self.micro_batches
        return _filled(self.rank, self.caps[self.rank], range(first, first + self.micro_batches))

    def order_to_end(self, iterations: int) -> Iterator[Action]:
        """What its order says after `order_of` so many iterations, until the pipeline is empty."""
        if not self.is_window:
            return iter(())
        return _emptied(self.rank, self.caps[self.rank], iterations * self.micro_batches)

    def most_held(self, stage: int, pending_share: float) -> float:
        """The most micro-batches of one of its stages that are held at once, those between the two parts of their
        backward as a part of one. Who keeps to no order may have all within the cap in flight.
        """
        if self.is_window or self.binding == "hint":
            return self.caps[stage]
        most, flying, pending = 0.0, 0, 0
        for of_stage, op, _ in self.computations:
            if of_stage == stage:
                flying += (op == "F") - (op in ("B", "I"))
                pending += (op == "I") - (op == "W")
                most = max(most, flying + pending * pending_share)
        return most

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
    return (*_filled(stage, cap, range(micro_batches)), *_emptied(stage, cap, micro_batches))


def shifted(actions: Iterable[Action], micro_batches: int) -> Iterator[Action]:
    """The same of as many micro-batches later."""
    return (Action(stage, op, micro_batches + each) for stage, op, each in actions)


def _filled(stage: int, cap: int, forwards: range) -> Iterator[Action]:
    """The forwards of a window, before each the backward that makes room for it."""
    for micro_batch in forwards:
        if micro_batch >= cap:
            yield Action(stage, "B", micro_batch - cap)
        yield Action(stage, "F", micro_batch)


def _emptied(stage: int, cap: int, micro_batches: int) -> Iterator[Action]:
    """The backwards that are left after the forwards of a window."""
    for micro_batch in range(max(0, micro_batches - cap), micro_batches):
        yield Action(stage, "B", micro_batch)
