"""horizon's portfolio: what a way of deciding is worth beside BACE-Pipe's decisions, and how slow it may be."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest

from scheduler.job import Elasticity
from scheduler.objective import Objective
from scheduler.policies import PolicyConfig
from scheduler.policies.horizon.config import HorizonConfig
from scheduler.policies.horizon.portfolio import loss_of
from scheduler.policies.horizon.rollout import Outcome
from scheduler.replay.records import ReplayResult
from tests.played import coming, play, scenario
from tests.worlds import both_ways, cluster, job

CONFIG = HorizonConfig()
BACE = Outcome(jct_s=1000.0, holding_usd=10.0, egress_usd=30.0)


def loss(played: Outcome, weight_jct: float = 0.5) -> float:
    return loss_of(played, BACE, weight_jct, CONFIG)


def test_a_way_that_comes_to_the_same_as_bace_pipe_loses_nothing() -> None:
    for weight in (0.0, 0.3, 0.5, 1.0):
        assert loss(BACE, weight) == 0.0


def test_parts_of_time_and_money_are_weighed_by_the_knob() -> None:
    quicker, cheaper = replace(BACE, jct_s=900.0), replace(BACE, holding_usd=9.0)
    assert loss(quicker) == pytest.approx(math.log(0.9))
    part = CONFIG.rollout_electricity
    # what is held is not counted once more in the egress: that is beside what BACE-Pipe holds
    assert loss(cheaper) == pytest.approx(part * math.log(0.9))
    assert loss(quicker, 0.0) == 0.0 == loss(cheaper, 1.0)
    assert loss(quicker, 1.0) == pytest.approx(2 * math.log(0.9))
    assert loss_of(quicker, BACE, 0.5, CONFIG, hurry=2.5) == pytest.approx(2.5 * math.log(0.9))


def test_egress_counts_with_the_electricity_so_that_a_little_is_no_harm() -> None:
    assert loss(replace(BACE, egress_usd=0.0)) == pytest.approx(CONFIG.rollout_egress * math.log(10 / 40))
    none = replace(BACE, egress_usd=0.0)
    little = replace(none, egress_usd=0.01)
    assert 0 < loss_of(little, none, 0.5, CONFIG) < 0.001


@pytest.mark.parametrize("bill_usd", [-5.0, 0.0])
def test_bills_of_nothing_or_less_are_no_reason_without_end(bill_usd: float) -> None:
    least = loss(replace(BACE, holding_usd=bill_usd))
    assert least == pytest.approx(CONFIG.rollout_electricity * math.log(0.1))
    paid = replace(BACE, holding_usd=bill_usd)
    assert loss_of(replace(paid, jct_s=900.0), paid, 0.5, CONFIG) == pytest.approx(math.log(0.9))


def played(policy: PolicyConfig, seed: int) -> ReplayResult:
    """Ten jobs that are known from the beginning and end when they say, on three regions of unlike price."""
    dice = random.Random(seed)
    jobs = [
        coming(
            job(f"j{number}", stages=(2, 16), micro_batches=8, steps=dice.randrange(100, 900)),
            0.0,
            elasticity=Elasticity.RESIZE,
        )
        for number in range(10)
    ]
    world = cluster({"a": 16, "b": 8, "c": 12}, both_ways(("a", "b", 1e9), ("b", "c", 1e9), ("a", "c", 1e9)))
    return play(scenario(world, {"a": 0.3, "b": 0.1, "c": 0.2}), jobs, policy)


def mean_jct_s(result: ReplayResult) -> float:
    times = [row.jct_s for row in result.jobs if row.jct_s is not None]
    assert len(times) == len(result.jobs)
    return sum(times) / len(times)


def paid_usd(result: ReplayResult) -> float:
    return sum(row.electricity_usd + row.egress_usd for row in result.jobs)


def outcome(result: ReplayResult) -> Outcome:
    return Outcome(
        mean_jct_s(result) * len(result.jobs),
        sum(row.electricity_usd for row in result.jobs),
        sum(row.egress_usd for row in result.jobs),
    )


def test_jobs_that_are_known_are_no_slower_than_under_bace_pipe_and_worth_their_bill() -> None:
    losses = []
    for seed in range(6):
        bace, horizon = (outcome(played(PolicyConfig(name), seed)) for name in ("bace", "horizon"))
        assert horizon.jct_s <= 1.01 * bace.jct_s
        losses.append(loss_of(horizon, bace, 0.5, CONFIG))
    assert sum(losses) / len(losses) < -0.02


def test_the_knob_goes_from_the_fastest_to_the_cheapest() -> None:
    fast, even, cheap = (
        [played(PolicyConfig("horizon", objective=Objective(weight)), seed) for seed in range(3)]
        for weight in (1.0, 0.5, 0.0)
    )
    times = [sum(map(mean_jct_s, results)) for results in (fast, even, cheap)]
    bills = [sum(map(paid_usd, results)) for results in (fast, even, cheap)]
    assert times[0] <= times[1] * 1.02
    assert times[1] < times[2]
    assert bills[0] >= bills[1] * 0.98
    assert bills[1] > bills[2]
