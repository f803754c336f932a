"""What a policy answers: a decision for every job that waits, and for running jobs where something is to change.

Decisions of one plan belong together. What a `Preempt` or a `Move` leaves may be used by a `Start` or a `Move` of the
same plan: it is promised to it, and the job begins as soon as what it needs has been left (`snapshot.Promise`).
"""

from __future__ import annotations

from dataclasses import dataclass

from scheduler.placement import Placement, Transfer
from scheduler.reasons import Reason


@dataclass(frozen=True, slots=True)
class Start:
    """Start the waiting job there. `predicted_iteration_s` is the timeline's, for what was granted.

    `transfers` bring its state, where it has a checkpoint in other regions.
    """

    job_id: str
    placement: Placement
    predicted_iteration_s: float
    why: str
    """One sentence a user understands: why this chain and these stages."""
    transfers: tuple[Transfer, ...] = ()


@dataclass(frozen=True, slots=True)
class Move:
    """Stop the running job at a checkpoint, and go on there: with other stages (resize), in other regions (migrate)."""

    job_id: str
    placement: Placement
    predicted_iteration_s: float
    why: str
    transfers: tuple[Transfer, ...] = ()


@dataclass(frozen=True, slots=True)
class Preempt:
    """Stop the running job at a checkpoint and let it wait again."""

    job_id: str
    why: str


@dataclass(frozen=True, slots=True)
class Hold:
    """Leave the job waiting, for these reasons. `position` counts from 1 in this round's order."""

    job_id: str
    position: int
    reasons: tuple[Reason, ...]


@dataclass(frozen=True, slots=True)
class Reject:
    """The job can never run as it was asked for, on this cluster and under this policy."""

    job_id: str
    reasons: tuple[Reason, ...]


Verdict = Start | Hold | Reject
"""What may be decided about a job that waits."""
Decision = Verdict | Preempt | Move


@dataclass(frozen=True, slots=True)
class Plan:
    """One decision for each waiting job, in the order in which the policy looked at them; changes to running ones."""

    snapshot_version: int
    decisions: tuple[Decision, ...]

    @property
    def starts(self) -> tuple[Start, ...]:
        return tuple(decision for decision in self.decisions if isinstance(decision, Start))

    @property
    def moves(self) -> tuple[Move, ...]:
        return tuple(decision for decision in self.decisions if isinstance(decision, Move))

    @property
    def preemptions(self) -> tuple[Preempt, ...]:
        return tuple(decision for decision in self.decisions if isinstance(decision, Preempt))
