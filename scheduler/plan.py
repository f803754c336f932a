"""What a policy answers: a decision for every job that waits, made against one snapshot."""

from __future__ import annotations

from dataclasses import dataclass

from scheduler.placement import Placement
from scheduler.reasons import Reason


@dataclass(frozen=True, slots=True)
class Start:
    """Start the job there now. `predicted_iteration_s` is the timeline's, for what was granted."""

    job_id: str
    placement: Placement
    predicted_iteration_s: float
    why: str
    """One sentence a user understands: why this chain and these stages."""


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


Decision = Start | Hold | Reject


@dataclass(frozen=True, slots=True)
class Plan:
    """One decision for each waiting job, in the order in which the policy looked at them."""

    snapshot_version: int
    decisions: tuple[Decision, ...]

    @property
    def starts(self) -> tuple[Start, ...]:
        return tuple(decision for decision in self.decisions if isinstance(decision, Start))
