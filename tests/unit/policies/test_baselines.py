"""The baselines do what their names say."""

from scheduler.check import check_plan
from scheduler.plan import Hold, Reject, Start
from scheduler.policies import POLICIES, PolicyConfig, decide
from scheduler.reasons import ReasonCode
from tests.worlds import both_ways, cluster, job, snapshot

WORLD = cluster(
    {"cheap": 4, "large": 6, "mid": 5},
    both_ways(("cheap", "large", 4), ("large", "mid", 9), ("cheap", "mid", 9)),
)
PRICES = {"cheap": 0.1, "large": 0.3, "mid": 0.2}


def chain(policy: str, waiting=None, world=WORLD, prices=PRICES) -> str:
    snap = snapshot(world, waiting or job(), prices=prices)
    plan = decide(snap, PolicyConfig(policy))
    assert check_plan(snap, plan) == ()
    assert isinstance(plan.decisions[0], Start)
    return plan.decisions[0].placement.describe()


def test_lcf_takes_the_cheapest_region_that_has_room():
    assert chain("lcf") == "cheap:4"
    assert chain("lcf", job(stages=(5, None))) == "mid:5"


def test_lcf_takes_a_region_without_a_known_price_last():
    assert chain("lcf", prices={"large": 9.0}) == "large:4"


def test_ldf_and_fifo_take_the_region_with_the_most_free_gpus():
    assert chain("ldf") == chain("fifo") == "large:4"


def test_cr_lcf_goes_through_the_regions_by_price():
    assert chain("cr-lcf") == "cheap:4>mid:4"


def test_cr_ldf_goes_through_the_regions_by_capacity():
    assert chain("cr-ldf") == "large:6>mid:2"


def test_cr_ldf_takes_the_wider_link_of_regions_that_both_suffice():
    world = cluster({"a": 6, "b": 4, "c": 4}, both_ways(("a", "b", 5), ("a", "c", 9)))
    assert chain("cr-ldf", world=world) == "a:6>c:2"


def test_cross_region_policies_accept_a_link_that_does_not_keep_up_but_not_less_than_a_tenth():
    slow = cluster({"a": 4, "b": 4}, both_ways(("a", "b", 4)))
    waiting = job(stages=(8, 8))  # needs 8 bit/s
    snap = snapshot(slow, waiting)
    start = decide(snap, PolicyConfig("cr-lcf")).decisions[0]
    assert isinstance(start, Start)
    assert start.placement.cuts[0].bandwidth_bps == 4
    # The timeline tells the truth: each of four micro-batches takes two seconds over the cut, not one.
    assert start.predicted_iteration_s > (4 + 8 - 1) * 1.0
    assert isinstance(decide(snap, PolicyConfig("bace")).decisions[0], Reject)
    dead = cluster({"a": 4, "b": 4}, both_ways(("a", "b", 0.7)))
    assert isinstance(decide(snapshot(dead, waiting), PolicyConfig("cr-lcf")).decisions[0], Reject)


def test_a_job_larger_than_any_region_is_refused_by_the_single_region_policies_only():
    waiting = job(weight_bytes=640)  # at least seven stages: eight, as fast as which none is
    snap = snapshot(WORLD, waiting)
    for name, policy in POLICIES.items():
        decision = decide(snap, PolicyConfig(name)).decisions[0]
        if policy.crosses_regions:
            assert isinstance(decision, Start), name
        else:
            assert isinstance(decision, Reject), name
            assert decision.reasons[0].code is ReasonCode.NEVER_FITS
            assert decision.reasons[0].available == 6
            assert "largest region" in decision.reasons[0].detail


def test_fifo_goes_by_arrival_and_the_others_by_the_users_priority():
    snap = snapshot(cluster({"a": 4}), job("late", submit_s=2, priority=90), job("early", submit_s=1))
    assert decide(snap, PolicyConfig("fifo")).starts[0].job_id == "early"
    for name in ("lcf", "ldf", "cr-lcf", "cr-ldf", "bace"):
        assert decide(snap, PolicyConfig(name)).starts[0].job_id == "late"


def test_a_held_single_region_job_is_told_the_roomiest_region():
    snap = snapshot(cluster({"a": 8}), job("one"), job("two", submit_s=1))
    second = decide(snap, PolicyConfig("fifo")).decisions[1]
    assert isinstance(second, Hold)
    assert [reason.code for reason in second.reasons] == [
        ReasonCode.BEHIND_IN_QUEUE,
        ReasonCode.GPUS_EXHAUSTED,
    ]
