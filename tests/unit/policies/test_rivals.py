"""The elastic rivals of horizon: what each of them does with running jobs, and what it does not look at."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scheduler.check import check_plan
from scheduler.job import Elasticity
from scheduler.plan import Hold, Move, Plan, Preempt, Reject, Start
from scheduler.policies import GROWING, PolicyConfig, decide
from scheduler.snapshot import RunningJob, Snapshot, WaitingJob
from tests.worlds import both_ways, cluster, job, runs, snapshot

NOW_S = 10_000.0
ELASTIC = ("bace-elastic", "srpt", "marginal", "horizon")


def elastic(waiting: WaitingJob, how: Elasticity = Elasticity.RESIZE) -> WaitingJob:
    return replace(waiting, spec=replace(waiting.spec, elasticity=how))


def long_job(name: str, steps: int = 5000, **more: object) -> WaitingJob:
    return elastic(job(name, steps=steps, micro_batches=32, **more))


def at(world, waiting, running=(), prices=None, now_s=NOW_S) -> Snapshot:
    return replace(snapshot(world, *waiting, running=running, prices=prices), now_s=now_s)


def standing(world, waiting: WaitingJob, stages: int, region: str, since_s: float = 0.0) -> RunningJob:
    """The job on so many stages of one region."""
    fixed = replace(
        waiting,
        spec=replace(
            waiting.spec,
            parallelism=replace(waiting.spec.parallelism, stages_min=stages, stages_max=stages),
            placement=replace(waiting.spec.placement, regions=(region,)),
        ),
    )
    (start,) = decide(snapshot(world, fixed), PolicyConfig("bace")).starts
    held = runs(waiting, start.placement, steps=waiting.remaining_steps)
    return replace(held, allocation=replace(held.allocation, start_s=since_s), ready_s=since_s)


def plan_of(name: str, snap: Snapshot) -> Plan:
    plan = decide(snap, PolicyConfig(name))
    assert check_plan(snap, plan) == ()
    return plan


@pytest.mark.parametrize("name", ELASTIC)
def test_a_job_grows_where_that_pays_and_says_why(name: str):
    world = cluster({"a": 8})
    snap = at(world, [], [standing(world, long_job("r"), 2, "a")])
    (move,) = plan_of(name, snap).decisions
    assert isinstance(move, Move)
    assert move.placement.stages > 2
    assert move.why


@pytest.mark.parametrize("name", ELASTIC)
@pytest.mark.parametrize("how", [Elasticity.NONE, Elasticity.RESTART])
def test_who_may_not_be_resized_keeps_its_stages(name: str, how: Elasticity):
    world = cluster({"a": 8})
    held = standing(world, elastic(long_job("r"), how), 2, "a")
    assert plan_of(name, at(world, [], [held])).decisions == ()


@pytest.mark.parametrize("name", ELASTIC)
def test_who_has_just_started_is_left_alone(name: str):
    world = cluster({"a": 8})
    held = standing(world, long_job("r"), 2, "a", since_s=NOW_S - 10)
    assert plan_of(name, at(world, [], [held])).decisions == ()


@pytest.mark.parametrize("name", ELASTIC)
def test_a_short_job_gets_a_place_that_a_long_one_gives_up(name: str):
    world = cluster({"a": 8})
    held = standing(world, long_job("r", 50_000), 8, "a")
    plan = plan_of(name, at(world, [long_job("new", 100)], [held]))
    assert [start.job_id for start in plan.starts] == ["new"]
    assert any(isinstance(each, Move | Preempt) and each.job_id == "r" for each in plan.decisions)


@pytest.mark.parametrize("name", ["bace-elastic", "srpt"])
def test_nobody_is_pushed_aside_for_a_longer_job_or_one_of_lower_priority(name: str):
    world = cluster({"a": 8})
    held = standing(world, long_job("r", 5_000, priority=60), 8, "a")
    for newcomer in (long_job("longer", 50_000, priority=60), long_job("lower", 100, priority=50)):
        plan = plan_of(name, at(world, [newcomer], [held]))
        assert [type(each) for each in plan.decisions] == [Hold]


@pytest.mark.parametrize("name", ["srpt", "marginal"])
def test_prices_change_nothing(name: str):
    world = cluster({"a": 8, "b": 7}, both_ways(("a", "b", 1e6)))
    waiting = [long_job("w", 700), long_job("v", 900)]
    plans = [
        plan_of(name, at(world, waiting, [standing(world, long_job("r"), 2, "a")], prices))
        for prices in ({"a": 0.1, "b": 0.9}, {"a": 0.9, "b": 0.1}, {})
    ]
    described = [
        [(type(each), each.job_id, each.placement.describe()) for each in (*plan.starts, *plan.moves)]
        for plan in plans
    ]
    assert described[0]
    assert described[0] == described[1] == described[2]


def test_srpt_starts_the_shortest_first_and_in_one_region_only():
    world = cluster({"a": 4, "b": 4}, both_ways(("a", "b", 1e6)))
    plan = plan_of("srpt", at(world, [long_job("long", 900), long_job("short", 100), long_job("mid", 500)]))
    assert {start.job_id for start in plan.starts} == {"short", "mid"}
    assert all(len(start.placement.regions) == 1 for start in plan.starts)
    assert isinstance(plan_of("srpt", at(world, [long_job("wide", stages=(8, 8))])).decisions[0], Reject)


def test_bace_elastic_starts_what_bace_starts_where_bace_puts_it():
    world = cluster({"a": 3, "b": 5, "c": 4}, both_ways(("a", "b", 40), ("b", "c", 40), ("a", "c", 4)))
    waiting = [long_job("w", 700), long_job("v", 9000, stages=(3, 4))]
    snap = at(world, waiting, prices={"a": 0.1, "b": 0.2, "c": 0.3})
    ours = {each.job_id: each.placement for each in plan_of("bace-elastic", snap).starts}
    theirs = {each.job_id: each.placement for each in plan_of("bace", snap).starts}
    assert ours == theirs


def test_bace_elastic_does_not_move_a_job_to_a_cheaper_region():
    world = cluster({"a": 8, "b": 8}, both_ways(("a", "b", 1e6)))
    held = standing(world, long_job("r", 50_000), 8, "a")
    assert plan_of("bace-elastic", at(world, [], [held], {"a": 0.9, "b": 0.01})).decisions == ()


def test_marginal_shares_a_full_cluster_among_jobs_that_are_alike():
    world = cluster({"a": 8})
    plan = plan_of("marginal", at(world, [long_job(f"j{n}") for n in range(4)]))
    assert sorted(start.placement.stages for start in plan.starts) == [2, 2, 2, 2]


def test_marginal_gives_gpus_to_whom_they_speed_up():
    """One job cannot use more than two stages, the other as many as there are."""
    world = cluster({"a": 8})
    flat, steep = long_job("flat", layers=24, stages=(1, 2)), long_job("steep", layers=24)
    plan = plan_of("marginal", at(world, [flat, steep]))
    assert {start.job_id: start.placement.stages for start in plan.starts} == {"flat": 2, "steep": 6}


def test_marginal_leaves_no_gpu_idle_because_a_step_is_too_large():
    world = cluster({"a": 7})  # eight stages would be worth most for a GPU; of those that fit, six are
    plan = plan_of(
        "marginal", at(world, [long_job(name, layers=24, stages=(4, 12)) for name in ("one", "two")])
    )
    assert [start.placement.stages for start in plan.starts] == [6]


def test_marginal_does_not_restart_a_job_that_has_hardly_stood_there():
    """The same growth pays for a job that has stood for hours, and not for one that was started minutes ago."""
    world = cluster({"a": 8})
    slow = replace(world, restart=replace(world.restart, fixed_s=3000.0))
    for since_s, changes in ((NOW_S - 400, 0), (NOW_S - 400_000, 1)):
        held = standing(slow, long_job("r"), 4, "a", since_s)
        assert len(plan_of("marginal", at(slow, [], [held])).moves) == changes


def test_marginal_keeps_a_job_where_it_is_on_a_number_of_stages_that_it_would_not_have_chosen():
    """Seven stages of eight layers are no faster than four, yet nothing has to restart there."""
    world = cluster({"a": 7})
    slow = replace(world, restart=replace(world.restart, fixed_s=3000.0))
    held = standing(world, long_job("r"), 4, "a", NOW_S - 400)
    assert plan_of("marginal", at(slow, [], [held])).decisions == ()


def test_marginal_shrinks_a_running_job_for_newcomers_but_pushes_it_out_for_nobody():
    world = cluster({"a": 8})
    held = standing(world, long_job("r", 50_000), 8, "a")
    plan = plan_of("marginal", at(world, [long_job(f"w{n:02d}", 10) for n in range(20)], [held]))
    (move,) = plan.moves
    assert move.job_id == "r"
    assert plan.starts
    assert move.placement.stages + sum(start.placement.stages for start in plan.starts) == 8


def test_marginal_keeps_a_job_near_its_state_where_the_way_is_long():
    """In b it would be faster, once its state has got there."""
    for width, where in ((1, "a:4"), (1000, "b:8")):
        world = cluster({"a": 4, "b": 8}, both_ways(("a", "b", width)))
        held = standing(world, long_job("r", 20, weight_bytes=90.0, activation_bits=0.01), 2, "a")
        (move,) = plan_of("marginal", at(world, [], [held])).moves
        assert move.placement.describe() == where


def test_marginal_may_stretch_a_job_over_regions_whose_link_keeps_up():
    world = cluster({"a": 5, "b": 5}, both_ways(("a", "b", 1e6)))
    (start,) = plan_of("marginal", at(world, [long_job("wide", stages=(8, 8))])).starts
    assert isinstance(start, Start)
    assert set(start.placement.regions) == {"a", "b"}


@pytest.mark.parametrize("name", [name for name in GROWING if name not in ("easy", "fifo")])
def test_a_turned_knob_bounds_the_stages_between_those_named_and_k_star(name: str):
    world, waiting = cluster({"a": 8}), job(named=2, layers=840, seconds=1e5, steps=10_000)

    def stages(growth: float) -> int:
        (start,) = decide(snapshot(world, waiting), PolicyConfig(name, growth=growth)).starts
        return start.placement.stages

    assert [stages(growth) for growth in (0.0, 0.5, 1.0)] == [2, 5, 8]
