"""What begins is given its order: where one is faster or was asked for, told with what it brings, and nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scheduler.check import check_plan
from scheduler.evaluate import as_planned, evaluate
from scheduler.job import Elasticity, Schedule
from scheduler.plan import Move, Plan, Preempt, Start
from scheduler.policies import MAIN, PolicyConfig, decide
from scheduler.policies.orders import in_order
from tests.worlds import GPU, both_ways, cluster, job, runs, snapshot

BACE = PolicyConfig("bace")
TIGHT = replace(GPU, memory_bytes=100.0)


def world(latency_s: float = 0.6):
    """Two regions of four, whose memory holds five micro-batches a stage."""
    made = cluster({"a": 4, "b": 4}, both_ways(("a", "b", 400)), gpus=[TIGHT])
    links = {key: replace(link, latency_s=latency_s) for key, link in made.links.items()}
    return replace(made, links=links)


def asks(schedule: Schedule, **changes):
    return job(
        schedule=schedule, stages=(8, 8), micro_batches=16, weight_bytes=8.0, inflight_bytes=88.0, **changes
    )


def started(schedule: Schedule, config: PolicyConfig = BACE, **changes) -> Start:
    waiting = asks(schedule, **changes)
    snap = snapshot(world(), waiting)
    plan = decide(snap, config)
    assert check_plan(snap, plan) == ()
    (start,) = plan.starts
    assert as_planned(waiting.spec, snap.cluster, start.placement).iteration_s == start.predicted_iteration_s
    return start


def test_auto_is_given_an_order_where_it_is_faster_and_told_by_how_much():
    start = started(Schedule.AUTO)
    assert start.placement.schedule is Schedule.GENERATED
    spec = asks(Schedule.AUTO).spec
    window = evaluate(spec, world(), start.placement.segments, start.placement.cuts)
    faster = window.timeline_s / as_planned(spec, world(), start.placement).timeline_s - 1
    assert faster > 0.001
    told = f"Its order is generated for these links: {100 * faster:.1f} % faster than {window.placement.schedule}"
    assert told in start.why
    assert "of a GPU at most." in start.why


@pytest.mark.parametrize("policy", sorted(set(MAIN) - {"fifo", "lcf", "ldf"}))
def test_every_policy_that_crosses_regions_gives_the_order_that_was_asked_for(policy: str):
    for schedule in (Schedule.GENERATED, Schedule.ZB_H1, Schedule.V_HALF):
        changes = {} if schedule.parts == 1 else {"layers": 16}
        start = started(schedule, PolicyConfig(policy), **changes)
        assert start.placement.schedule is schedule
        assert start.placement.stages == 8


def test_whoever_asked_for_a_window_keeps_it():
    for schedule in (Schedule.ONE_F_ONE_B, Schedule.SLACK_1F1B):
        start = started(schedule)
        assert not start.placement.order
        assert "generated" not in start.why


def test_a_job_that_is_moved_is_given_an_order_for_where_it_goes():
    waiting = asks(Schedule.AUTO)
    moved = replace(waiting, spec=replace(waiting.spec, elasticity=Elasticity.RESIZE))
    goes = evaluate(moved.spec, world(), *_place(started(Schedule.AUTO)))
    running = runs(moved, started(Schedule.AUTO).placement)
    snap = snapshot(world(), running=[running])
    move = Move("j", goes.placement, goes.iteration_s, "because.")
    plan = in_order(snap, Plan(1, (move, Preempt("other", "because."))))
    assert plan.moves[0].placement.schedule is Schedule.GENERATED
    assert plan.moves[0].predicted_iteration_s < goes.iteration_s
    assert plan.moves[0].why.startswith("because. Its order is generated")
    assert plan.decisions[1] == Preempt("other", "because.")


def test_a_decision_about_nobody_is_left_to_the_check():
    start = started(Schedule.AUTO)
    plan = Plan(1, (replace(start, job_id="ghost"),))
    assert in_order(snapshot(world()), plan) == plan


def _place(start: Start):
    return start.placement.segments, start.placement.cuts
