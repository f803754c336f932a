"""Replays of small worlds made in code: which jobs come when, and what a policy makes of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from scheduler.cluster import Cluster
from scheduler.job import Elasticity, JobSpec
from scheduler.policies import PolicyConfig
from scheduler.price import PriceSeries
from scheduler.replay.engine import replay
from scheduler.replay.jobs import ReplayJob
from scheduler.replay.records import JobRow, ReplayResult
from scheduler.snapshot import WaitingJob
from scheduler.spec.scenario import Scenario
from scheduler.spec.scenario_document import ScaleSection, TrainingDefaultsSection


def scenario(
    cluster: Cluster,
    prices: Mapping[str, float | PriceSeries] | None = None,
    start_s: float = 0.0,
    shares: Mapping[str, float] | None = None,
) -> Scenario:
    """A scenario of nothing but a cluster, its prices (USD/kWh; 0.1 everywhere unless told) and its tenants."""
    told = dict.fromkeys(cluster.regions, 0.1) if prices is None else prices
    series = {
        name: price if isinstance(price, PriceSeries) else PriceSeries.flat(price)
        for name, price in told.items()
    }
    return Scenario(
        "played",
        Path("played.yaml"),
        start_s,
        cluster,
        series,
        dict.fromkeys(series, "a test"),
        (),
        TrainingDefaultsSection(),
        ScaleSection(),
        shares=shares or {},
    )


def coming(
    job: WaitingJob,
    at_s: float,
    *,
    elasticity: Elasticity = Elasticity.NONE,
    actual_steps: int | None = None,
    start_s: float = 0.0,
    **told: object,
) -> ReplayJob:
    """A job that is submitted then; `told` replaces fields of its spec. It runs what it declares unless told."""
    spec: JobSpec = replace(job.spec, submit_s=start_s + at_s, elasticity=elasticity, **told)
    return ReplayJob(spec, at_s, actual_steps or spec.training.steps)


def play(world: Scenario, jobs: Sequence[ReplayJob], policy: str | PolicyConfig = "horizon") -> ReplayResult:
    """The jobs under a policy, in order of arrival."""
    config = policy if isinstance(policy, PolicyConfig) else PolicyConfig(policy)
    return replay(world, sorted(jobs, key=lambda each: each.submit_s), config)


def row_of(result: ReplayResult, job_id: str) -> JobRow:
    """What became of a job."""
    return next(row for row in result.jobs if row.job_id == job_id)


def waited_s(result: ReplayResult, job_id: str) -> float:
    """From its submission until it first started."""
    row = row_of(result, job_id)
    assert row.first_start_s is not None, f"{job_id} never started"
    return row.first_start_s - row.submit_s
