"""horizon without one of its mechanisms: what is switched off stays off, and what is left still decides."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scheduler.job import Elasticity
from scheduler.objective import Objective
from scheduler.plan import Plan, Start
from scheduler.policies import POLICIES, PolicyConfig, decide
from scheduler.policies.horizon.board import Board
from scheduler.policies.horizon.policy import HorizonPolicy
from scheduler.policies.horizon.queue import shortest_first
from scheduler.policies.queueing import QueueRound
from scheduler.policies.variants import VARIANTS
from scheduler.price import PriceSeries
from scheduler.snapshot import Snapshot, StateSpan
from tests.worlds import both_ways, cluster, job, runs, snapshot

HOUR = 3600.0
LINKED = cluster({"a": 4, "b": 4, "c": 4}, both_ways(("a", "b", 1e6), ("b", "c", 1e6), ("a", "c", 1e6)))


DEAR = Objective(weight_jct=0.1)
FASTEST = Objective(weight_jct=1.0)


def without(variant: str, shown: Snapshot, objective: Objective = FASTEST) -> Plan:
    """The decision of a variant."""
    return decide(shown, PolicyConfig("horizon", objective=objective, variant=variant))


def start_of(variant: str, shown: Snapshot, objective: Objective = FASTEST) -> Start:
    (start,) = without(variant, shown, objective).starts
    return start


def board_of(variant: str, shown: Snapshot) -> Board:
    horizon = POLICIES["horizon"]
    assert isinstance(horizon, HorizonPolicy)
    varied = replace(horizon, config=VARIANTS[variant])
    round_ = QueueRound.of(varied.verdicts, shown, strict=False, seed=0)
    return varied.board(shown, 0, Objective(), round_)[0]


def test_chains_are_as_long_as_the_variant_allows() -> None:
    shown = snapshot(LINKED, job(layers=12, seconds=12.0, micro_batches=16))
    lengths = {
        variant: len(start_of(variant, shown).placement.regions) for variant in ("", "one-cut", "no-chains")
    }
    assert lengths == {"": 3, "one-cut": 2, "no-chains": 1}


def test_stages_are_any_that_pay_those_that_the_job_names_or_as_many_as_there_is_room_for() -> None:
    world = cluster({"a": 7})
    jobs = [job(f"j{number}", micro_batches=1, named=3, steps=300) for number in range(2)]
    stages = {
        variant: max(start.placement.stages for start in without(variant, snapshot(world, *jobs)).starts)
        for variant in ("no-rollouts", "named-stages", "most-stages")
    }
    assert stages["named-stages"] == 3
    assert stages["most-stages"] == 7 - 3  # 5, 6 and 7 stages of 8 layers are as slow as 4
    assert stages["no-rollouts"] < 4


def test_a_job_that_names_fewer_stages_than_fit_gets_the_fewest_that_do() -> None:
    shown = snapshot(cluster({"a": 8}), job(weight_bytes=300.0, named=2))
    assert start_of("named-stages", shown).placement.stages == 4


def waiting_with_state_in(region: str) -> Snapshot:
    """A job whose state lies in one region while another one is cheaper and larger."""
    world = cluster({"a": 8, "b": 4}, both_ways(("a", "b", 1e12)))
    waits = replace(job(generation=2, steps=10_000), state=(StateSpan(region, 8),))
    return snapshot(world, waits, prices={"a": 0.01, "b": 1.0})


def test_without_migration_jobs_go_on_where_their_state_lies() -> None:
    assert start_of("", waiting_with_state_in("b")).placement.regions == ("a",)
    assert start_of("no-migration", waiting_with_state_in("b")).placement.regions == ("b",)


def test_without_migration_running_jobs_still_grow_where_they_are() -> None:
    world = cluster({"a": 8, "b": 4}, both_ways(("a", "b", 1e12)))
    small = job(stages=(2, 2), steps=10_000)
    placement = start_of("", snapshot(cluster({"b": 4}), small)).placement
    elastic = replace(small, spec=replace(job(steps=10_000).spec, elasticity=Elasticity.RESIZE))
    grown = replace(runs(elastic, placement, steps=9_000), ready_s=-HOUR)
    for variant, region in (("", "a"), ("no-migration", "b")):
        (move,) = without(variant, snapshot(world, running=[grown])).moves
        assert move.placement.regions == (region,)
        assert move.placement.stages > 2


def test_in_order_of_arrival_the_first_comes_first() -> None:
    long = job("long", steps=10_000, submit_s=-10.0)
    short = job("short", steps=10, submit_s=-5.0)
    urgent = job("urgent", steps=100, submit_s=0.0, priority=60)
    shown = snapshot(cluster({"a": 4}), long, short, urgent)
    orders = {
        variant: [work.job_id for work in shortest_first(board_of(variant, shown))]
        for variant in ("no-forecast", "fifo-order")
    }
    assert orders == {"no-forecast": ["urgent", "short", "long"], "fifo-order": ["urgent", "long", "short"]}


def test_without_a_forecast_the_prices_of_now_go_on() -> None:
    soon_dear = PriceSeries((0.0, HOUR), (0.1, 0.9), (-HOUR, -HOUR)).known(0.0)
    soon_cheap = PriceSeries((0.0, HOUR), (0.2, 0.05), (-HOUR, -HOUR)).known(0.0)
    world = cluster({"a": 8, "b": 8})
    shown = replace(
        snapshot(world, job(stages=(8, 8), steps=10_000)), electricity={"a": soon_dear, "b": soon_cheap}
    )
    assert start_of("no-rollouts", shown, DEAR).placement.regions == ("b",)
    assert start_of("no-forecast", shown, DEAR).placement.regions == ("a",)


def test_without_a_forecast_no_price_below_that_of_now_comes() -> None:
    series = PriceSeries((0.0, HOUR, 5 * HOUR), (0.1, -0.4, 0.9), (-HOUR,) * 3).known(0.0)
    shown = replace(snapshot(cluster({"a": 8}), job()), electricity={"a": series})
    assert board_of("no-rollouts", shown).prices.lowest < 0
    prices = board_of("no-forecast", shown).prices
    assert prices.lowest == 0.1
    assert prices.usd([("a", 2.0)], 0.0, 48 * HOUR) == pytest.approx(2.0 * 0.1 * 48)
