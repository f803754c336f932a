"""A job of a replay: what it declares, and what it really does."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from statistics import NormalDist

from scheduler.job import JobSpec
from scheduler.replay.draws import uniform


@dataclass(frozen=True, slots=True)
class ReplayJob:
    """`spec.training.steps` is what the job declares, `actual_steps` what it runs; no policy sees the latter.

    `submit_s` counts from the start of the scenario; `spec.submit_s` is the same moment in epoch seconds.
    """

    spec: JobSpec
    submit_s: float
    actual_steps: int


def declared_steps(actual_steps: int, job_id: str, sigma: float, seed: int, bias: float = 1.0) -> int:
    """actual × bias × log-normal(0, sigma), rounded, at least 1.

    The deviate is drawn from SHA-256 of seed and job id, so that it depends neither on the order of the jobs nor
    on the other jobs there are.
    """
    if sigma == 0 and bias == 1:
        return actual_steps
    deviate = NormalDist().inv_cdf(uniform(f"{seed}/{job_id}"))
    return max(1, round(actual_steps * bias * math.exp(sigma * deviate)))


def with_estimate(job: ReplayJob, sigma: float, seed: int, bias: float = 1.0) -> ReplayJob:
    """The job with declared steps drawn around its actual ones."""
    steps = declared_steps(job.actual_steps, job.spec.job_id, sigma, seed, bias)
    return replace(job, spec=replace(job.spec, training=replace(job.spec.training, steps=steps)))
