"""horizon's portfolio: a chain now, or room in one region after the next end."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scheduler.check import check_plan
from scheduler.job import Elasticity, Schedule
from scheduler.placement import Placement, Segment
from scheduler.plan import Hold, Plan
from scheduler.policies import PolicyConfig, decide
from scheduler.reasons import ReasonCode
from scheduler.snapshot import Snapshot
from tests.worlds import both_ways, cluster, job, runs, snapshot

CHAINED = PolicyConfig("horizon", variant="no-apart")


def shown(*, steps_left: int, schedule: Schedule) -> Snapshot:
    """Half of a region is held by a job that needs 8 s an iteration; whoever needs eight GPUs now needs a chain, whose
    cut delays every micro-batch of strict 1F1B."""
    world = cluster({"a": 8, "b": 4}, both_ways(("a", "b", 1e6), latency_s=3.0))
    holds = job("holds", stages=(4, 4), micro_batches=1, steps=steps_left)
    placement = Placement((Segment("a", "g", 4, 1),), (), Schedule.ONE_F_ONE_B, (1, 1, 1, 1))
    running = replace(runs(holds, placement, steps=steps_left), ready_s=0.0)
    new = job("new", stages=(8, 8), micro_batches=16, steps=100, schedule=schedule)
    new = replace(new, spec=replace(new.spec, elasticity=Elasticity.RESTART))  # else all are chosen together
    return snapshot(world, new, running=[running])


def decided(snap: Snapshot, config: PolicyConfig) -> Plan:
    plan = decide(snap, config)
    assert not check_plan(snap, plan)
    return plan


def test_a_job_waits_for_one_region_that_is_soon_free_where_a_chain_would_be_slow() -> None:
    snap = shown(steps_left=10, schedule=Schedule.ONE_F_ONE_B)
    (start,) = decided(snap, CHAINED).starts
    assert start.placement.regions == ("a", "b")
    plan = decided(snap, PolicyConfig("horizon"))
    assert not plan.starts
    (hold,) = plan.decisions
    assert isinstance(hold, Hold)
    (reason,) = hold.reasons
    assert reason.code is ReasonCode.BETTER_SOON
    assert "a:4>b:4" in reason.detail


@pytest.mark.parametrize(
    ("steps_left", "schedule"), [(1000, Schedule.ONE_F_ONE_B), (300, Schedule.SLACK_1F1B)]
)
def test_it_does_not_where_that_takes_long_or_the_chain_is_as_good(
    steps_left: int, schedule: Schedule
) -> None:
    (start,) = decided(shown(steps_left=steps_left, schedule=schedule), PolicyConfig("horizon")).starts
    assert start.placement.regions == ("a", "b")
