"""The order of BACE-Pipe: the user's priority first, then Priority_j = (1 − α)(1 − I_j) + α(1 − D_j).

α is the congestion of the network now: while links are free, jobs that compute little go first (close to shortest
job first); as they fill, jobs that need little bandwidth do. What is not published is ours: I_j is the remaining
run time of the job alone over the largest among the waiting, D_j its r_j = A·K/t over the largest.
"""

from __future__ import annotations

from collections.abc import Sequence

from scheduler.options import Demand
from scheduler.snapshot import WaitingJob


def dynamic_priority(intensity: float, sensitivity: float, congestion: float) -> float:
    """(1 − α)(1 − I) + α(1 − D); all four are fractions between 0 and 1, higher goes first."""
    return (1.0 - congestion) * (1.0 - intensity) + congestion * (1.0 - sensitivity)


def by_dynamic_priority(
    jobs: Sequence[tuple[WaitingJob, Demand]], congestion: float
) -> list[tuple[WaitingJob, Demand]]:
    """The jobs, first to last. Equal ones go by time of submission, then by id."""
    run_s = [job.remaining_steps * demand.solo_iteration_s for job, demand in jobs]
    longest = max(run_s, default=0.0) or 1.0
    widest = max((demand.rate_bps for _, demand in jobs), default=0.0) or 1.0
    keys = [
        (
            -job.spec.priority,
            -dynamic_priority(alone_s / longest, demand.rate_bps / widest, congestion),
            *arrival(job),
        )
        for (job, demand), alone_s in zip(jobs, run_s, strict=True)
    ]
    return [jobs[index] for index in sorted(range(len(jobs)), key=keys.__getitem__)]


def by_user_priority(
    jobs: Sequence[tuple[WaitingJob, Demand]], _congestion: float
) -> list[tuple[WaitingJob, Demand]]:
    """The user's priority, then arrival."""
    return sorted(jobs, key=lambda each: (-each[0].spec.priority, *arrival(each[0])))


def by_arrival(
    jobs: Sequence[tuple[WaitingJob, Demand]], _congestion: float
) -> list[tuple[WaitingJob, Demand]]:
    """First come, first served, whatever priority a user gave."""
    return sorted(jobs, key=lambda each: arrival(each[0]))


def arrival(job: WaitingJob) -> tuple[float, str]:
    """When the job came; ties by its id."""
    return (job.spec.submit_s, job.spec.job_id)
