"""The order of BACE-Pipe: the user's priority first, then Priority_j = (1 − α)(1 − I_j) + α(1 − D_j).

α is the congestion of the network now: while links are free, jobs that compute little go first (close to shortest
job first); as they fill, jobs that need little bandwidth do. What is not published is ours: I_j is the remaining
run time of the job alone over the largest among the waiting, D_j its r_j = A·K/t over the largest.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from scheduler.options import Demand
from scheduler.snapshot import WaitingJob

Asking = tuple[WaitingJob, Demand]
Key = tuple[float | str, ...]


@dataclass(frozen=True, slots=True)
class Scale:
    """What the priorities of one round are relative to: the longest run of a waiting job alone, the largest r_j of
    one, and the congestion of the network."""

    longest_s: float
    widest_bps: float
    congestion: float

    @classmethod
    def of(cls, jobs: Iterable[Asking], congestion: float) -> Scale:
        """The scale of a round over these jobs."""
        longest_s = widest_bps = 0.0
        for job, demand in jobs:
            longest_s = max(longest_s, alone_s(job, demand))
            widest_bps = max(widest_bps, demand.rate_bps)
        return cls(longest_s, widest_bps, congestion)


class Order(Protocol):
    """Who comes first: sorts the jobs of a round by `key`, which ends with `arrival`.

    Whatever the scale, jobs of one demand come by `rank`; only those whose keys tie before `arrival` go by that.
    `relative`: whether keys depend on the scale. Where they do not, the key is the rank.
    """

    @property
    def relative(self) -> bool: ...

    def __call__(self, jobs: Sequence[Asking], congestion: float) -> list[Asking]: ...

    def key(self, job: WaitingJob, demand: Demand, scale: Scale) -> Key: ...

    def rank(self, job: WaitingJob) -> Key: ...


def dynamic_priority(intensity: float, sensitivity: float, congestion: float) -> float:
    """(1 − α)(1 − I) + α(1 − D); all four are fractions between 0 and 1, higher goes first."""
    return (1.0 - congestion) * (1.0 - intensity) + congestion * (1.0 - sensitivity)


def alone_s(job: WaitingJob, demand: Demand) -> float:
    """Remaining run time of the job alone, at its best."""
    return job.remaining_steps * demand.solo_iteration_s


def arrival(job: WaitingJob) -> tuple[float, str]:
    """When the job came; ties by its id."""
    return (job.spec.submit_s, job.spec.job_id)


class _ByDynamicPriority:
    """The user's priority, then Priority_j. Equal ones go by time of submission, then by id."""

    relative = True

    def __call__(self, jobs: Sequence[Asking], congestion: float) -> list[Asking]:
        scale = Scale.of(jobs, congestion)
        keys = [self.key(job, demand, scale) for job, demand in jobs]
        return [jobs[index] for index in sorted(range(len(jobs)), key=keys.__getitem__)]

    def key(self, job: WaitingJob, demand: Demand, scale: Scale) -> Key:
        intensity = alone_s(job, demand) / (scale.longest_s or 1.0)
        sensitivity = demand.rate_bps / (scale.widest_bps or 1.0)
        priority = dynamic_priority(intensity, sensitivity, scale.congestion)
        return (-job.spec.priority, -priority, *arrival(job))

    def rank(self, job: WaitingJob) -> Key:
        return (-job.spec.priority, job.remaining_steps, *arrival(job))


class _ByUserPriority:
    """The user's priority, then arrival."""

    relative = False

    def __call__(self, jobs: Sequence[Asking], congestion: float) -> list[Asking]:
        return sorted(jobs, key=lambda each: self.rank(each[0]))

    def key(self, job: WaitingJob, demand: Demand, scale: Scale) -> Key:
        return self.rank(job)

    def rank(self, job: WaitingJob) -> Key:
        return (-job.spec.priority, *arrival(job))


class _ByArrival:
    """First come, first served, whatever priority a user gave."""

    relative = False

    def __call__(self, jobs: Sequence[Asking], congestion: float) -> list[Asking]:
        return sorted(jobs, key=lambda each: arrival(each[0]))

    def key(self, job: WaitingJob, demand: Demand, scale: Scale) -> Key:
        return arrival(job)

    def rank(self, job: WaitingJob) -> Key:
        return arrival(job)


by_dynamic_priority: Order = _ByDynamicPriority()
by_user_priority: Order = _ByUserPriority()
by_arrival: Order = _ByArrival()
