"""The baselines do what their names say."""

from scheduler.check import check_plan
from scheduler.plan import Hold, Reject, Start
from scheduler.policies import POLICIES, PolicyConfig, decide
from scheduler.policies.queueing import QueuePolicy
from scheduler.reasons import ReasonCode
from tests.worlds import both_ways, cluster, job, region, runs, snapshot

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


def test_ldf_and_fifo_count_free_gpus_and_not_whole_stages():
    world = cluster({"more": 7, "less": 6})  # three stages of two GPUs in both
    for name in ("ldf", "fifo"):
        assert chain(name, job(tensor=2), world, {"more": 0.3, "less": 0.1}) == "more:3"


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


def test_a_region_inside_a_chain_shares_its_uplink_between_its_two_cuts():
    world = cluster({"a": 3, "b": 3, "c": 3}, both_ways(("a", "b", 20), ("b", "c", 20)), [region("b", up=8)])
    for name in ("cr-lcf", "cr-ldf"):
        snap = snapshot(world, job(stages=(8, 8)))  # each cut needs 8 bit/s, all that b has
        (start,) = decide(snap, PolicyConfig(name)).starts
        assert [cut.bandwidth_bps for cut in start.placement.cuts] == [4, 4]


def test_cross_region_policies_start_with_fewer_stages_where_links_are_too_narrow_for_all():
    # Three stages need c, whose link has a tenth of what three need but not of what K* = 4 do.
    world = cluster({"a": 1, "b": 1, "c": 2}, both_ways(("a", "b", 40), ("b", "c", 3)))
    for name in ("cr-lcf", "cr-ldf"):
        snap = snapshot(world, job(layers=4, stages=(3, 4), activation_bits=80))
        (start,) = decide(snap, PolicyConfig(name)).starts
        assert start.placement.stages == 3


def test_a_held_cross_region_job_is_told_the_bandwidth_that_its_policy_asks_for():
    world = cluster({"a": 8, "b": 8}, both_ways(("a", "b", 82)))
    other = job("r", stages=(8, 8), activation_bits=80)
    (start,) = decide(snapshot(cluster({"a": 4, "b": 4}, world.links.values()), other), PolicyConfig()).starts
    assert start.placement.cuts[0].bandwidth_bps == 80
    waiting = job(stages=(8, 8), activation_bits=80)
    for name, needed in (("cr-lcf", 8), ("cr-ldf", 8), ("bace", 80)):
        snap = snapshot(world, waiting, running=[runs(other, start.placement)])
        (decision,) = decide(snap, PolicyConfig(name)).decisions
        assert isinstance(decision, Hold)
        lack = decision.reasons[1]
        assert (lack.code, lack.needed, lack.available) == (ReasonCode.LINK_BANDWIDTH_EXHAUSTED, needed, 2)


def test_where_only_the_order_of_the_policy_is_in_the_way_it_says_so():
    # The longest chain is p > q > m > r > s; by price, everybody who comes to m turns off into x.
    links = both_ways(*((a, b, 99) for a, b in ("pq", "qm", "mr", "rs", "mx")))
    world = cluster(dict.fromkeys("pqmrsx", 1), links)
    prices = {**dict.fromkeys("pqmrs", 0.2), "x": 0.1}
    (decision,) = decide(snapshot(world, job(stages=(5, 5)), prices=prices), PolicyConfig("cr-lcf")).decisions
    assert isinstance(decision, Hold)
    (reason,) = decision.reasons
    assert reason.code is ReasonCode.CHAIN_TOO_SHORT
    assert "order" in reason.detail
    assert reason.available is None


def test_a_job_larger_than_any_region_is_refused_by_the_single_region_policies_only():
    waiting = job(weight_bytes=640)  # at least seven stages: eight, as fast as which none is
    snap = snapshot(WORLD, waiting)
    for name, policy in POLICIES.items():
        verdicts = policy if isinstance(policy, QueuePolicy) else policy.verdicts
        decision = decide(snap, PolicyConfig(name)).decisions[0]
        if verdicts.crosses_regions:
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
