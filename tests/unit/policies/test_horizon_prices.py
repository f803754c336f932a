"""What horizon makes of prices: below zero, unknown, and of rent in the place of electricity."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from scheduler.cluster import Cluster, Ownership
from scheduler.network import Topology
from scheduler.objective import Objective
from scheduler.plan import Start
from scheduler.policies import POLICIES, PolicyConfig, decide
from scheduler.policies.horizon.board import Board
from scheduler.policies.horizon.ground import Prices
from scheduler.policies.horizon.options import best_option, score_of
from scheduler.policies.horizon.policy import HorizonPolicy
from scheduler.policies.queueing import QueueRound
from scheduler.price import PriceSeries
from scheduler.snapshot import Snapshot, WaitingJob
from tests.worlds import both_ways, cluster, job, snapshot

HOUR = 3600.0
DEAR = Objective(weight_jct=0.1)


def board_of(shown: Snapshot, objective: Objective = DEAR) -> Board:
    horizon = POLICIES["horizon"]
    assert isinstance(horizon, HorizonPolicy)
    round_ = QueueRound.of(horizon.verdicts, shown, strict=False, seed=0)
    return horizon.board(shown, 0, objective, round_)[0]


def hourly(*values: float, repeat: int = 1) -> PriceSeries:
    """Hours from time 0 on, all known beforehand."""
    told = values * repeat
    return PriceSeries(tuple(HOUR * index for index in range(len(told))), told, (-HOUR,) * len(told))


def priced(world: Cluster, prices: Mapping[str, PriceSeries], *jobs: WaitingJob) -> Snapshot:
    known = {region: series.known(0.0) for region, series in prices.items()}
    return replace(snapshot(world, *jobs), electricity=known)


def start_of(shown: Snapshot) -> Start:
    (start,) = decide(shown, PolicyConfig("horizon", objective=DEAR)).starts
    return start


def test_a_bill_below_zero_is_summed_as_it_is() -> None:
    series = hourly(0.2, -0.5, -0.1, *(0.05,) * 400)
    board = board_of(priced(cluster({"a": 8}), {"a": series}, job(stages=(4, 4), steps=500)))
    option = best_option(board.works["j"], board, None)
    assert option is not None
    (_, kilowatts), *_ = option.seat.draw_kw
    for duration_s in (900.0, 3 * HOUR, 6 * HOUR):
        exact = kilowatts * series.integral(0.0, duration_s) / HOUR
        assert board.holding_usd(option.seat, duration_s) == pytest.approx(exact, rel=1e-9)
    assert board.holding_usd(option.seat, 3 * HOUR) < 0


@pytest.mark.parametrize("seed", range(20))
def test_a_seat_that_takes_longer_never_scores_better_whatever_prices_do(seed: int) -> None:
    dice = random.Random(seed)
    values = [dice.choice([1.0, 30.0]) * dice.uniform(-1.0, 0.6) for _ in range(400)]
    world = cluster({"a": 8, "b": 8}, both_ways(("a", "b", 1e3)))
    jobs = [job(f"j{number}", stages=(4, 4), steps=dice.randint(10, 3000)) for number in range(4)]
    board = board_of(priced(world, {"a": hourly(*values), "b": hourly(*values[::-1])}, *jobs))
    work = board.works["j0"]
    option = best_option(work, board, None)
    assert option is not None
    slower = [
        replace(option.seat, iteration_s=option.seat.iteration_s * k) for k in np.linspace(1.0, 8.0, 60)
    ]
    scores = [score_of(work, seat, board) for seat in slower]
    assert all(b > a for a, b in pairwise(scores))


def test_no_job_is_slowed_to_earn() -> None:
    """A chain whose cuts delay every micro-batch draws more for longer: where that is paid for it must not be taken."""
    world = cluster({"a": 8, "b": 8}, both_ways(("a", "b", 1e3), latency_s=2.0))
    shown = priced(world, dict.fromkeys("ab", hourly(-40.0, repeat=400)), job(stages=(8, 8), steps=300))
    assert len(start_of(shown).placement.regions) == 1


def test_among_prices_below_zero_the_lowest_is_still_the_best() -> None:
    for low, high in (("a", "b"), ("b", "a")):
        prices = {low: hourly(-0.3, repeat=400), high: hourly(-0.1, repeat=400)}
        assert start_of(priced(cluster({"a": 8, "b": 8}), prices, job(stages=(8, 8)))).placement.regions == (
            low,
        )


@pytest.mark.parametrize("known", [-0.1, 0.0, 0.4])
def test_a_price_that_nobody_knows_is_never_the_cheapest(known: float) -> None:
    for told in "ab":
        shown = priced(cluster({"a": 8, "b": 8}), {told: hourly(known, repeat=400)}, job(stages=(8, 8)))
        assert start_of(shown).placement.regions == (told,)


def test_a_price_that_is_not_told_any_more_is_unknown_and_the_sentence_says_so() -> None:
    feed = PriceSeries(
        tuple(-10 * 86_400.0 + HOUR * index for index in range(48)), (0.01,) * 48, (-10 * 86_400.0,) * 48
    )
    fresh = hourly(0.4, repeat=400)
    world = cluster({"a": 8, "b": 8})
    assert start_of(priced(world, {"a": feed, "b": fresh}, job(stages=(8, 8)))).placement.regions == ("b",)
    for policy in ("lcf", "bace", "horizon"):
        shown = priced(cluster({"a": 8}), {"a": feed}, job(stages=(8, 8)))
        (start,) = decide(shown, PolicyConfig(policy)).starts
        assert "unknown (the last one is of 1969-12-23" in start.why


def test_with_no_price_known_anywhere_jobs_start_all_the_same() -> None:
    assert start_of(priced(cluster({"a": 8}), {}, job())).placement.regions == ("a",)


def test_forecasts_are_the_means_between_the_knots() -> None:
    series = hourly(*(math.sin(index) for index in range(400)))
    shown = priced(cluster({"a": 8}), {"a": series})
    prices = Prices.of(shown, Topology.of(shown.cluster))
    unbounded = np.full(3, -np.inf)
    told = prices.over(0.0, np.array([HOUR, 24 * HOUR, 168 * HOUR]), unbounded)[0]
    exact = [series.integral(0.0, hours * HOUR) for hours in (1, 24, 168)]
    assert told.tolist() == pytest.approx(exact)
    later = prices.over(6 * HOUR, np.array([6 * HOUR, 18 * HOUR, 162 * HOUR]), unbounded)[0]
    assert later.tolist() == pytest.approx([series.integral(6 * HOUR, h * HOUR) for h in (12, 24, 168)])


def rented(world: Cluster, rents: Mapping[str, float]) -> Cluster:
    """The same with pools that are rented for so much a GPU and hour."""
    pools = {
        key: replace(pool, ownership=Ownership.RENTED, rent_usd_per_gpu_hour=rents[key[0]])
        if key[0] in rents
        else pool
        for key, pool in world.pools.items()
    }
    return replace(world, pools=pools)


def test_rent_is_what_a_rented_pool_costs_whatever_its_electricity() -> None:
    world = cluster({"a": 8, "b": 8})
    dear_power = {"a": hourly(0.9, repeat=400), "b": hourly(0.1, repeat=400)}
    both = rented(world, {"a": 1.0, "b": 3.0})
    assert start_of(priced(both, dear_power, job(stages=(8, 8)))).placement.regions == ("a",)
    one = rented(world, {"a": 2.0})  # one kW a GPU: owned it costs ten cents an hour
    assert start_of(priced(one, dear_power, job(stages=(8, 8)))).placement.regions == ("b",)
    cheap = rented(world, {"a": 0.02})
    assert start_of(priced(cheap, dear_power, job(stages=(8, 8)))).placement.regions == ("a",)


def test_rent_lets_a_job_take_fewer_stages() -> None:
    """Where GPUs are dear, those that a pipeline mostly leaves idle are not worth their rent."""
    jobs = [job(f"j{number}", micro_batches=2, steps=100) for number in range(3)]
    free = rented(cluster({"a": 24}), {"a": 0.0})
    dear = rented(cluster({"a": 24}), {"a": 50.0})
    cheapest = PolicyConfig("horizon", objective=Objective(weight_jct=0.0), variant="no-rollouts")
    stages = [
        sum(start.placement.stages for start in decide(snapshot(world, *jobs), cheapest).starts)
        for world in (free, dear)
    ]
    assert stages[1] < stages[0]


def test_a_seat_in_two_kinds_of_pools_pays_each_in_its_kind() -> None:
    world = rented(cluster({"a": 4, "b": 4}, both_ways(("a", "b", 1e6))), {"b": 2.0})
    board = board_of(
        priced(world, {"a": hourly(0.5, repeat=400), "b": hourly(0.5, repeat=400)}, job(stages=(8, 8)))
    )
    option = best_option(board.works["j"], board, None)
    assert option is not None
    ((region, kilowatts),) = option.seat.draw_kw
    assert region == "a"
    assert option.seat.rent_usd_per_hour == 4 * 2.0
    assert board.holding_usd(option.seat, HOUR) == pytest.approx(kilowatts * 0.5 + 8.0)
