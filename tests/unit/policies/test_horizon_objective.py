"""The knob of horizon: the cheapest within a part of the fastest."""

from __future__ import annotations

import pytest

from scheduler.job import Elasticity
from scheduler.objective import Objective
from scheduler.policies import PolicyConfig
from scheduler.replay.records import ReplayResult
from tests.played import coming, play, scenario
from tests.worlds import cluster, job

PARTS = (0.0, 0.05, 0.3, 1.0)


def played(part: float, count: int, gap_s: float) -> ReplayResult:
    """Jobs that are fastest on eight stages, which draw far more than fewer do."""
    jobs = [
        coming(
            job(f"j{number:02d}", micro_batches=4, steps=200 + 37 * number),
            number * gap_s,
            elasticity=Elasticity.RESIZE,
        )
        for number in range(count)
    ]
    world = scenario(cluster({"a": 16, "b": 16}), {"a": 0.4, "b": 0.1})
    return play(world, jobs, PolicyConfig("horizon", objective=Objective(1.0, part)))


def mean_jct_s(result: ReplayResult) -> float:
    times = [row.jct_s for row in result.jobs if row.jct_s is not None]
    assert len(times) == len(result.jobs)
    return sum(times) / len(times)


def paid_usd(result: ReplayResult) -> float:
    return sum(row.electricity_usd + row.egress_usd for row in result.jobs)


@pytest.mark.parametrize("count", [1, 3, 6])
def test_the_more_time_may_be_given_the_less_is_paid_for_jobs_that_are_known(count: int) -> None:
    results = [played(part, count, 0.0) for part in PARTS]
    paid = [paid_usd(result) for result in results]
    assert paid == sorted(paid, reverse=True)
    assert paid[-1] < 0.97 * paid[0]
    for part, result in zip(PARTS, results, strict=True):
        assert mean_jct_s(result) <= (1 + part) * mean_jct_s(results[0]) * 1.01


@pytest.mark.parametrize(
    ("count", "gap_s"), [(6, 600.0), (30, 0.0)], ids=["as they come", "too many to play out"]
)
def test_no_more_time_is_given_than_was_allowed(count: int, gap_s: float) -> None:
    results = [played(part, count, gap_s) for part in PARTS]
    for part, result in zip(PARTS, results, strict=True):
        assert mean_jct_s(result) <= (1 + part) * mean_jct_s(results[0]) * 1.02
