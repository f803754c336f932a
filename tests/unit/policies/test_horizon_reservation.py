"""A stream of small jobs never starves a gang: a place is kept for whoever has waited too long."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from scheduler.check import check_plan
from scheduler.job import Elasticity
from scheduler.plan import Hold, Start
from scheduler.policies import POLICIES, PolicyConfig, decide
from scheduler.policies.horizon.config import HorizonConfig
from scheduler.policies.horizon.policy import HorizonPolicy
from scheduler.reasons import ReasonCode
from scheduler.replay.jobs import ReplayJob
from scheduler.snapshot import Snapshot
from tests.played import coming, play, scenario, waited_s
from tests.worlds import both_ways, cluster, job, runs, snapshot

HOUR = 3600.0
ALONE = cluster({"a": 10})
GANG = job("gang", layers=8, seconds=8.0, stages=(8, 8), steps=327)
"""Eight of ten GPUs, 11 s an iteration: an hour alone."""
MAIN_WAY = PolicyConfig("horizon", variant="no-rollouts")
"""Its main way of deciding."""
PATIENCE_S = 1.2 * HOUR
"""That, and what horizon adds because jobs run longer than they declare."""


def stream(
    elasticity: Elasticity, *, hours: float, seed: int = 0, sigma: float = 0.0, most: int = 1
) -> Iterator[ReplayJob]:
    """Jobs of one GPU and about an hour, one every five minutes: two more than there is room for."""
    dice = random.Random(seed)
    for number in range(round(hours * 12)):
        steps = round(110 * dice.uniform(0.5, 1.5))
        small = job(f"s{number:03d}", layers=most, seconds=8.0, stages=(1, most), steps=steps)
        actual = max(1, round(steps * dice.lognormvariate(0.0, sigma)))
        yield coming(small, number * 300.0, elasticity=elasticity, actual_steps=actual)


def longest_run_s(jobs: list[ReplayJob]) -> float:
    return max(each.actual_steps * 4 * 8.0 for each in jobs)


@pytest.mark.parametrize("elasticity", [Elasticity.NONE, Elasticity.RESIZE])
def test_a_gang_of_most_of_the_cluster_starts_in_the_middle_of_an_endless_stream(
    elasticity: Elasticity,
) -> None:
    small = list(stream(elasticity, hours=10))
    result = play(scenario(ALONE), [*small, coming(GANG, HOUR, elasticity=elasticity)], MAIN_WAY)
    assert waited_s(result, "gang") <= PATIENCE_S + longest_run_s(small)


@pytest.mark.parametrize("elasticity", [Elasticity.NONE, Elasticity.RESIZE])
def test_it_starts_in_a_stream_of_jobs_that_take_all_they_can_and_all_wait_too_long(
    elasticity: Elasticity,
) -> None:
    small = list(stream(elasticity, hours=12, most=4))
    result = play(scenario(ALONE), [*small, coming(GANG, HOUR, elasticity=elasticity)], MAIN_WAY)
    older_s = HOUR  # of work that had come before it
    assert (
        waited_s(result, "gang") <= HorizonConfig().drains_after * PATIENCE_S + longest_run_s(small) + older_s
    )


def test_without_a_place_kept_the_same_stream_starves_the_gang(monkeypatch: pytest.MonkeyPatch) -> None:
    horizon = POLICIES["horizon"]
    assert isinstance(horizon, HorizonPolicy)
    never = replace(horizon, config=HorizonConfig(patience_s=1e9, rollout_jobs=0))
    monkeypatch.setattr("scheduler.policies.POLICIES", {**POLICIES, "horizon": never})
    result = play(scenario(ALONE), [*stream(Elasticity.NONE, hours=16), coming(GANG, HOUR)])
    assert waited_s(result, "gang") > 8 * HOUR


@pytest.mark.parametrize("seed", range(3))
def test_it_starts_where_nobody_ends_when_they_said(seed: int) -> None:
    small = list(stream(Elasticity.NONE, hours=16, seed=seed, sigma=1.0))
    result = play(scenario(ALONE), [*small, coming(GANG, HOUR)], MAIN_WAY)
    assert waited_s(result, "gang") <= HorizonConfig().drains_after * PATIENCE_S + longest_run_s(small)


def test_a_job_that_may_not_wait_long_gets_its_place_at_once() -> None:
    small = list(stream(Elasticity.NONE, hours=8))
    soon = play(scenario(ALONE), [*small, coming(GANG, HOUR, max_wait_s=60.0)], MAIN_WAY)
    later = play(scenario(ALONE), [*small, coming(GANG, HOUR)], MAIN_WAY)
    assert waited_s(soon, "gang") <= 60.0 + 300.0 + longest_run_s(small)
    assert waited_s(soon, "gang") < waited_s(later, "gang")


def full(gang_waits_s: float, ends: tuple[int, ...], *jobs, **more) -> Snapshot:
    """Ten GPUs, as many of them held as there are `ends` (iterations of 32 s left), and a gang that has waited."""
    world = cluster({"a": 10})
    held = [job(f"r{number}", layers=1, seconds=8.0, steps=1000) for number in range(len(ends))]
    first = decide(snapshot(world, *held), PolicyConfig("fifo"))
    running = [
        runs(waiting, start.placement, steps=left)
        for waiting, start, left in zip(held, first.starts, ends, strict=True)
    ]
    gang = replace(GANG, waits_since_s=-gang_waits_s, **more)
    return snapshot(world, gang, *jobs, running=running)


def test_it_starts_as_well_where_several_ways_of_deciding_are_played_out() -> None:
    small = list(stream(Elasticity.RESIZE, hours=5))
    result = play(scenario(ALONE), [*small, coming(GANG, HOUR, elasticity=Elasticity.RESIZE)])
    assert waited_s(result, "gang") <= PATIENCE_S + longest_run_s(small)


def test_who_ends_before_the_gang_can_begin_is_let_past_and_who_would_delay_it_is_not() -> None:
    brief = job("brief", layers=1, seconds=8.0, steps=10)
    long = job("long", layers=1, seconds=8.0, steps=5000)
    also = job("also", layers=1, seconds=8.0, steps=5000)
    third = job("third", layers=1, seconds=8.0, steps=5000)
    shown = full(2 * HOUR, (100,) * 6, brief, long, also, third)  # four are free, the gang leaves two over
    plan = decide(shown, PolicyConfig("horizon"))
    assert check_plan(shown, plan) == ()
    started = {each.job_id for each in plan.decisions if isinstance(each, Start)}
    assert "brief" in started
    assert len(started & {"long", "also", "third"}) == 2
    held = {each.job_id: each.reasons for each in plan.decisions if isinstance(each, Hold)}
    assert held["gang"][0].code is ReasonCode.PLACE_KEPT
    assert "a:8" in held["gang"][0].detail
    (other,) = held.keys() - {"gang"}
    assert held[other][0].code is ReasonCode.KEPT_FOR_ANOTHER
    assert "gang" in held[other][0].detail


def test_nobody_is_held_for_a_job_that_has_not_waited_too_long() -> None:
    jobs = [job(name, layers=1, seconds=8.0, steps=5000) for name in ("x", "y", "z", "w")]
    plan = decide(full(600.0, (100,) * 6, *jobs), PolicyConfig("horizon"))
    assert {each.job_id for each in plan.starts} == {"x", "y", "z", "w"}


def test_a_job_of_higher_priority_is_not_held_for_one_of_lower() -> None:
    urgent = [job(name, layers=1, seconds=8.0, steps=5000, priority=90) for name in ("x", "y", "z")]
    plan = decide(full(2 * HOUR, (100,) * 6, *urgent), PolicyConfig("horizon"))
    assert {each.job_id for each in plan.starts} == {"x", "y", "z"}


def test_a_running_job_grows_no_further_than_a_place_that_is_kept() -> None:
    world = cluster({"a": 10})
    rigid = job("r", layers=6, seconds=60.0, stages=(6, 6), steps=400)
    elastic = job("g", layers=8, seconds=64.0, stages=(1, 8), steps=2000)
    elastic = replace(elastic, spec=replace(elastic.spec, elasticity=Elasticity.RESIZE))
    wide, narrow = (
        decide(snapshot(cluster({"a": gpus}), each), PolicyConfig("fifo")).starts[0].placement
        for gpus, each in ((6, rigid), (1, elastic))
    )
    running = [
        replace(runs(elastic, narrow, steps=2000), ready_s=-7200.0),
        runs(rigid, wide, steps=400),
    ]
    (alone,) = decide(snapshot(world, running=running), PolicyConfig("horizon")).moves
    assert alone.placement.stages == 4, "with nobody waiting it takes all that is free"
    gang = replace(GANG, waits_since_s=-3 * HOUR)
    (beside,) = decide(snapshot(world, gang, running=running), PolicyConfig("horizon")).moves
    assert beside.placement.stages == 2, "the gang needs eight of ten"


def test_the_place_may_be_a_chain_over_regions() -> None:
    world = cluster({"a": 5, "b": 5}, both_ways(("a", "b", 100.0)))
    held = [job(f"r{number}", layers=1, seconds=8.0, steps=1000) for number in range(6)]
    first = decide(snapshot(world, *held), PolicyConfig("fifo"))
    running = [runs(each, start.placement, steps=100) for each, start in zip(held, first.starts, strict=True)]
    gang = replace(GANG, waits_since_s=-2 * HOUR)
    long = [job(f"l{number}", layers=1, seconds=8.0, steps=5000) for number in range(4)]
    plan = decide(snapshot(world, gang, *long, running=running), PolicyConfig("horizon"))
    assert len(plan.starts) == 2, "the gang leaves two of ten over"
    held_for = next(each for each in plan.decisions if isinstance(each, Hold) and each.job_id == "gang")
    assert held_for.reasons[0].code is ReasonCode.PLACE_KEPT
