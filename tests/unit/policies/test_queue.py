"""The round itself: strict order, back-filling, jobs that wait for nodes, and answers for everybody."""

from dataclasses import replace

import pytest

from scheduler.check import check_plan
from scheduler.errors import InvalidValueError
from scheduler.plan import Hold, Reject, Start
from scheduler.policies import POLICIES, PolicyConfig, decide
from scheduler.policies.queueing import QueuePolicy
from scheduler.reasons import ReasonCode
from scheduler.snapshot import StateSpan
from tests.worlds import BIG, GPU, both_ways, cluster, job, runs, snapshot

QUEUEING = [name for name, policy in POLICIES.items() if isinstance(policy, QueuePolicy)]


def half_full():
    """Eight GPUs, four of them taken."""
    world = cluster({"a": 8})
    (placed,) = decide(snapshot(world, job("r", stages=(4, 4))), PolicyConfig()).starts
    return world, [runs(job("r"), placed.placement)]


def test_what_does_not_fit_is_skipped_and_strict_blocks_behind_it():
    world, running = half_full()
    snap = snapshot(
        world, job("large", priority=99, stages=(8, 8)), job("small", stages=(1, 1)), running=running
    )
    relaxed = decide(snap, PolicyConfig()).decisions
    assert [type(each) for each in relaxed] == [Hold, Start]
    strict = decide(snap, PolicyConfig(strict=True)).decisions
    assert [type(each) for each in strict] == [Hold, Hold]
    assert strict[1].reasons[0].code is ReasonCode.BLOCKED_BY_HEAD
    assert "large" in strict[1].reasons[0].detail


def test_a_refused_job_does_not_block_the_strict_queue():
    snap = snapshot(cluster({"a": 4}), job("never", priority=99, stages=(8, 8)), job("small"))
    assert [type(each) for each in decide(snap, PolicyConfig(strict=True)).decisions] == [Reject, Start]


@pytest.mark.parametrize("name", POLICIES)
def test_while_no_node_has_joined_jobs_wait_and_are_not_refused(name):
    for world in (cluster({}), cluster({"a": 0})):
        (decision,) = decide(snapshot(world, job()), PolicyConfig(name)).decisions
        assert isinstance(decision, Hold)
        assert decision.reasons[0].code is ReasonCode.NO_CAPACITY_YET


@pytest.mark.parametrize("name", POLICIES)
def test_a_job_that_has_run_before_waits_for_its_nodes_and_is_not_refused(name):
    snap = snapshot(cluster({"a": 2}), job(stages=(4, 4), generation=2))
    (decision,) = decide(snap, PolicyConfig(name)).decisions
    assert isinstance(decision, Hold)
    assert decision.reasons[0].code is ReasonCode.WAITING_FOR_NODE
    assert decision.reasons[1].code is ReasonCode.NEVER_FITS


@pytest.mark.parametrize("name", POLICIES)
def test_a_waiting_job_is_told_of_the_gpus_that_can_hold_it_and_not_of_others(name):
    # Whole it fits on a big GPU only; in four stages it would fit on small ones, of which there are three.
    world = cluster({"a": {"g": 3, "big": 1}}, gpus=[GPU, BIG])
    heavy = job("r", weight_bytes=320, inflight_bytes=0)
    (start,) = decide(snapshot(world, heavy), PolicyConfig(name)).starts
    assert start.placement.segments[0].gpu_type == "big"
    snap = snapshot(world, job(weight_bytes=320), running=[runs(heavy, start.placement)])
    (decision,) = decide(snap, PolicyConfig(name)).decisions
    assert isinstance(decision, Hold)
    reason = decision.reasons[0]
    assert (reason.code, reason.needed, reason.available) == (ReasonCode.GPUS_EXHAUSTED, 1, 0)
    assert "on big" in reason.detail


@pytest.mark.parametrize("name", POLICIES)
def test_a_job_that_has_run_before_is_told_if_the_gpus_here_are_too_small(name):
    snap = snapshot(cluster({"a": 8}), job(weight_bytes=8000, generation=2))
    (decision,) = decide(snap, PolicyConfig(name)).decisions
    assert isinstance(decision, Hold)
    codes = [reason.code for reason in decision.reasons]
    assert codes == [ReasonCode.WAITING_FOR_NODE, ReasonCode.MEMORY_TOO_SMALL]


def test_a_refused_job_that_only_links_keep_apart_is_not_told_a_number_that_would_do():
    snap = snapshot(cluster({"a": 4, "b": 4}, both_ways(("a", "b", 1))), job(stages=(8, 8)))
    (decision,) = decide(snap, PolicyConfig()).decisions
    assert isinstance(decision, Reject)
    assert "no chain of links" in decision.reasons[0].detail
    assert decision.reasons[0].available is None


def test_a_region_that_cools_down_makes_a_job_wait_and_not_refused():
    snap = snapshot(cluster({"a": 8, "b": 1}), job(stages=(4, 4), avoid=["a"]))
    (decision,) = decide(snap, PolicyConfig()).decisions
    assert isinstance(decision, Hold)
    assert any(
        reason.code is ReasonCode.REGION_FILTERED and reason.region == "a" for reason in decision.reasons
    )


def test_a_region_nobody_has_is_refused_with_the_rule_that_says_so():
    from scheduler.job import PlacementRule

    snap = snapshot(cluster({"a": 8}), job(placement=PlacementRule(regions=("mars-*",))))
    (decision,) = decide(snap, PolicyConfig()).decisions
    assert isinstance(decision, Reject)
    assert decision.reasons[0].code is ReasonCode.NEVER_FITS
    assert "mars-*" in decision.reasons[1].detail


def test_an_unknown_policy_is_an_error_that_names_those_there_are():
    with pytest.raises(InvalidValueError, match="one of fifo, lcf"):
        PolicyConfig("magic")


def test_an_empty_queue_is_an_empty_plan_of_that_version():
    plan = decide(snapshot(cluster({"a": 1})), PolicyConfig())
    assert plan.decisions == ()
    assert plan.snapshot_version == 1


def stopped_in(region_name: str):
    """A job that ran before; its whole checkpoint lies in one region."""
    waits = job("s", stages=(4, 4), weight_bytes=80.0, generation=2)
    return replace(waits, state=(StateSpan(region_name, 8),))


@pytest.mark.parametrize("name", QUEUEING)
def test_a_stopped_job_that_goes_on_elsewhere_brings_its_state(name):
    world = cluster({"a": 8, "b": 1}, both_ways(("a", "b", 20)))
    snap = snapshot(world, stopped_in("b"))
    plan = decide(snap, PolicyConfig(name))
    assert check_plan(snap, plan) == ()
    ((sent,),) = (start.transfers for start in plan.starts)
    assert (sent.src, sent.dst, sent.sent_bytes, sent.bandwidth_bps) == ("b", "a", 80.0, 20)
    snap = snapshot(world, stopped_in("a"))
    (start,) = decide(snap, PolicyConfig(name)).starts
    assert start.transfers == ()


@pytest.mark.parametrize("name", QUEUEING)
def test_a_stopped_job_whose_state_cannot_travel_now_is_told_so(name):
    world = cluster({"a": 8, "b": 1})
    snap = snapshot(world, stopped_in("b"), job("other", stages=(4, 4)))
    plan = decide(snap, PolicyConfig(name))
    assert check_plan(snap, plan) == ()
    decisions = {each.job_id: each for each in plan.decisions}
    held = decisions["s"]
    assert isinstance(held, Hold)
    assert held.reasons[0].code is ReasonCode.LINK_BANDWIDTH_EXHAUSTED
    assert isinstance(decisions["other"], Start)
