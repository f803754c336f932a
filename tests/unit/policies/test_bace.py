"""BACE-Pipe end to end: what it starts, where, with what bandwidth, and what it says."""

from dataclasses import replace

import pytest

from scheduler.check import check_plan
from scheduler.job import PlacementRule, Schedule, WeightVersions
from scheduler.plan import Hold, Reject, Start
from scheduler.policies import PolicyConfig, decide
from scheduler.reasons import ReasonCode
from tests.worlds import BIG, GPU, SLOW, both_ways, cluster, job, region, runs, snapshot

BACE = PolicyConfig("bace")


def start(snap, config=BACE) -> Start:
    plan = decide(snap, config)
    assert check_plan(snap, plan) == ()
    (decision,) = plan.decisions
    assert isinstance(decision, Start)
    return decision


def stages(decision: Start) -> dict[str, int]:
    return {f"{each.region}/{each.gpu_type}": each.stages for each in decision.placement.segments}


def test_stages_beyond_one_each_go_where_price_times_pue_is_lowest():
    world = cluster(
        {"a": 5, "b": 5, "c": 5},
        both_ways(("a", "b", 99), ("b", "c", 98), ("a", "c", 1)),
        [region("a", pue=1.5), region("b", pue=1.0), region("c", pue=1.0)],
    )
    decision = start(snapshot(world, job(), prices={"a": 0.1, "b": 0.14, "c": 0.2}))
    assert stages(decision) == {"a/g": 3, "b/g": 5} or stages(decision) == {"b/g": 5, "a/g": 3}
    assert "$/kWh" in decision.why


def test_an_unknown_price_comes_last_and_the_user_is_told():
    world = cluster({"a": 5, "b": 5}, both_ways(("a", "b", 99)))
    decision = start(snapshot(world, job(), prices={"a": 3.0}))
    assert stages(decision) == {"a/g": 5, "b/g": 3}
    assert "the price in b is unknown" in decision.why


def test_a_cut_is_granted_what_keeps_up_with_the_slowest_stage_and_no_more():
    world = cluster({"a": 4, "b": 4}, both_ways(("a", "b", 99)))
    (cut,) = start(snapshot(world, job())).placement.cuts
    assert cut.bandwidth_bps == 8  # 8 bits each second
    assert cut.latency_s == pytest.approx(0.01)


def test_bandwidth_that_runs_is_not_there_and_comes_back_when_it_ends():
    world = cluster({"a": 4, "b": 4}, both_ways(("a", "b", 12)))
    first = job("first", stages=(4, 4))
    placed = start(snapshot(cluster({"a": 2, "b": 2}, both_ways(("a", "b", 12))), first)).placement
    running = runs(first, placed)
    # 12 − 4 bit/s are left, two slots at either end: four stages more can be joined.
    assert start(snapshot(world, job("next"), running=[running])).placement.stages == 4
    narrow = cluster({"a": 4, "b": 4}, both_ways(("a", "b", 6)))
    assert start(snapshot(narrow, job("next"), running=[running])).placement.stages == 2
    assert start(snapshot(narrow, job("next"))).placement.stages == 4  # K* is 6, as fast as 4


def test_a_job_gets_its_least_or_nothing():
    world = cluster({"a": 2, "b": 2}, both_ways(("a", "b", 99)))
    running = runs(job("r"), start(snapshot(cluster({"a": 1}), job("r", stages=(1, 1)))).placement)
    (decision,) = decide(snapshot(world, job(weight_bytes=300), running=[running]), BACE).decisions
    assert isinstance(decision, Hold)
    assert decision.reasons[0].code is ReasonCode.GPUS_EXHAUSTED
    assert (decision.reasons[0].needed, decision.reasons[0].available) == (4, 3)


def test_no_gpu_is_promised_twice_in_a_round():
    world = cluster({"a": 8, "b": 8}, both_ways(("a", "b", 99)))
    snap = snapshot(world, *(job(f"j{number}") for number in range(4)))
    plan = decide(snap, BACE)
    assert check_plan(snap, plan) == ()
    assert [decision.placement.stages for decision in plan.starts] == [8, 8]
    held = [decision for decision in plan.decisions if isinstance(decision, Hold)]
    assert [decision.position for decision in held] == [1, 2]
    assert held[0].reasons[0].code is ReasonCode.BEHIND_IN_QUEUE


@pytest.mark.parametrize(("uplink_bps", "started"), [(11, 1), (12, 2)])
def test_a_region_inside_a_chain_has_paid_for_both_cuts_when_the_next_job_comes(uplink_bps, started):
    # Seven stages over a > c > b take one GPU of c and 2 × 4 bit/s of its uplink; five over c and d need 4 more.
    world = cluster(
        dict.fromkeys("abcd", 3),
        both_ways(("a", "c", 14), ("b", "c", 13), ("c", "d", 12)),
        [region("c", up=uplink_bps)],
    )
    first = job("first", stages=(7, 7), activation_bits=7.9, priority=90)
    second = job("second", stages=(5, 5), activation_bits=7.9)
    snap = snapshot(world, first, second)
    plan = decide(snap, BACE)
    assert check_plan(snap, plan) == ()
    assert plan.starts[0].placement.regions[1] == "c"
    assert len(plan.starts) == started


def test_who_is_held_for_a_narrow_link_is_told_which_and_how_much_it_lacks():
    world = cluster({"a": 2, "b": 2}, both_ways(("a", "b", 10)))
    big = job("big", stages=(4, 4), activation_bits=16)  # needs 8 bit/s at four stages
    running = runs(
        job("r"),
        start(
            snapshot(
                cluster({"a": 1, "b": 1}, both_ways(("a", "b", 9))),
                job("r", stages=(2, 2), activation_bits=20),
            )
        ).placement,
    )
    roomier = cluster({"a": 3, "b": 3}, both_ways(("a", "b", 10)))
    (decision,) = decide(snapshot(roomier, big, running=[running]), BACE).decisions
    assert isinstance(decision, Hold)
    codes = [reason.code for reason in decision.reasons]
    assert codes == [ReasonCode.CHAIN_TOO_SHORT, ReasonCode.LINK_BANDWIDTH_EXHAUSTED]
    assert decision.reasons[1].link == ("a", "b")
    assert decision.reasons[1].needed == 8
    assert decision.reasons[1].available == 10 - 5
    assert isinstance(decide(snapshot(world, big), BACE).decisions[0], Start)


def test_bace_k0_stays_at_the_stages_that_the_job_names():
    world = cluster({"a": 8})
    assert start(snapshot(world, job(named=3))).placement.stages == 8
    as_named = start(snapshot(world, job(named=3)), PolicyConfig("bace-k0"))
    assert as_named.placement.stages == 3
    assert "names" in as_named.why
    assert "K*" not in as_named.why


def test_placement_rules_bind():
    world = cluster({"a": 4, "b": 4, "c": 4}, both_ways(("a", "b", 99), ("b", "c", 99), ("a", "c", 99)))
    rule = PlacementRule(exclude=("b",), max_regions=2)
    assert set(start(snapshot(world, job(placement=rule))).placement.regions) == {"a", "c"}
    assert start(snapshot(world, job(placement=PlacementRule(max_regions=1)))).placement.stages == 4


def test_of_several_types_the_fastest_that_suffices_is_taken():
    world = cluster({"a": {"g": 8, "slow": 8}}, gpus=(GPU, SLOW))
    waiting = job(seconds={"g": 8.0, "slow": 80.0})
    assert stages(start(snapshot(world, waiting))) == {"a/g": 8}


def test_types_are_mixed_where_that_is_faster_and_the_solver_keeps_the_memory():
    # Each type alone has room for four stages, together for eight; the first stages hold most in flight and
    # fit in the big memory only.
    world = cluster({"a": {"g": 4}, "b": {"big": 4}}, both_ways(("a", "b", 99)), gpus=(GPU, BIG))
    waiting = job(inflight_bytes=160, micro_batches=8, schedule=Schedule.ONE_F_ONE_B)
    decision = start(snapshot(world, waiting))
    assert decision.placement.stages == 8
    assert list(stages(decision)) == ["b/big", "a/g"]


def test_slack_jobs_get_the_best_window_that_fits():
    world = cluster({"a": 4, "b": 4}, both_ways(("a", "b", 99), latency_s=2.0))

    def started(schedule: Schedule, inflight_bytes: float) -> Start:
        return start(snapshot(world, job(schedule=schedule, micro_batches=32, inflight_bytes=inflight_bytes)))

    roomy, tight = started(Schedule.SLACK_1F1B, 1), started(Schedule.SLACK_1F1B, 90)
    strict = started(Schedule.ONE_F_ONE_B, 90)
    assert roomy.placement.schedule is tight.placement.schedule is Schedule.SLACK_1F1B
    assert max(tight.placement.window) <= 8 < max(roomy.placement.window)
    assert strict.placement.schedule is Schedule.ONE_F_ONE_B
    assert roomy.predicted_iteration_s < tight.predicted_iteration_s < 0.6 * strict.predicted_iteration_s


def test_a_job_larger_than_the_cluster_is_refused_by_how_much():
    world = cluster({"a": 1, "b": 2}, both_ways(("a", "b", 99)))
    (decision,) = decide(snapshot(world, job(weight_bytes=300)), BACE).decisions
    assert isinstance(decision, Reject)
    assert decision.reasons[0].code is ReasonCode.NEVER_FITS
    assert (decision.reasons[0].needed, decision.reasons[0].available) == (4, 3)
    assert "1 GPU too few" in decision.reasons[0].detail


SIZED = {"a": 6, "b": 2}
MIXED = {"a": {"big": 2, "slow": 3}, "b": {"big": 1}}


@pytest.mark.parametrize(
    ("pools", "stages", "tensor", "rule", "told", "available"),
    [
        (SIZED, 9, 1, {}, "9 GPUs (9 stages of 1 GPU on big); the regions it may use have 8 GPUs when all is free: "
         "1 GPU too few", 8),
        (SIZED, 5, 2, {}, "10 GPUs (5 stages of 2 GPUs on big); the regions it may use have 8 GPUs when all is free: "
         "2 GPUs too few", 8),
        (SIZED, 4, 3, {}, "12 GPUs (4 stages of 3 GPUs on big); "
         "the regions it may use have 8 GPUs when all is free, in "
         "which 2 stages can stand, each in one region: 2 stages too few", 6),
        (SIZED, 2, 4, {}, "8 GPUs (2 stages of 4 GPUs on big); the regions it may use have 8 GPUs when all is free, in "
         "which 1 stage can stand, each in one region: 1 stage too few", 4),
        (SIZED, 1, 7, {}, "7 GPUs (1 stage of 7 GPUs on big); the regions it may use have 8 GPUs when all is free, in "
         "which 0 stages can stand, each in one region: 1 stage too few", 0),
        (SIZED, 4, 2, {"max_regions": 1}, "8 GPUs (4 stages of 2 GPUs on big); "
         "the largest region it may use has 6 GPUs "
         "when all is free: 2 GPUs too few", 6),
        (SIZED, 3, 2, {"regions": ("b",)}, "6 GPUs (3 stages of 2 GPUs on big); "
         "the largest region it may use has 2 GPUs "
         "when all is free: 4 GPUs too few", 2),
        (SIZED | {"c": 1}, 9, 1, {"max_regions": 2}, "9 GPUs (9 stages of 1 GPU on big); "
         "the 2 largest regions it may use "
         "have 8 GPUs when all is free: 1 GPU too few", 8),
        (MIXED, 7, 1, {}, "7 GPUs (7 stages of 1 GPU on big or slow); the regions it may use have 6 GPUs when all is "
         "free: 1 GPU too few", 6),
        (MIXED, 3, 2, {}, "6 GPUs (3 stages of 2 GPUs on big or slow); the regions it may use have 6 GPUs when all is "
         "free, in which 2 stages can stand, each on one type in one region: 1 stage too few", 4),
    ],
)  # fmt: skip
def test_what_is_too_few_is_told_in_figures_that_add_up(pools, stages, tensor, rule, told, available):
    links = both_ways(*(("a", name, 99) for name in pools if name != "a"))
    world = cluster(pools, links, gpus=(BIG, SLOW))
    asked = job(stages=(stages, None), tensor=tensor, layers=9, placement=PlacementRule(**rule))
    (decision,) = decide(snapshot(world, asked), BACE).decisions
    assert isinstance(decision, Reject)
    reason = decision.reasons[0]
    assert reason.detail == f"needs at least {told}"
    assert (reason.needed, reason.available) == (stages * tensor, available)


def test_a_job_that_no_memory_holds_is_refused_by_how_much():
    (decision,) = decide(snapshot(cluster({"a": 99}), job(weight_bytes=8000)), BACE).decisions
    assert isinstance(decision, Reject)
    assert decision.reasons[0].code is ReasonCode.MEMORY_TOO_SMALL
    assert decision.reasons[0].available == 95
    assert decision.reasons[0].needed == pytest.approx(1000, rel=0.01)


def test_a_job_whose_updates_allow_too_few_stages_for_its_memory_is_told_so():
    waiting = job(weight_bytes=300)
    training = replace(waiting.spec.training, versions=WeightVersions(most_in_flight=2))
    waiting = replace(waiting, spec=replace(waiting.spec, training=training))
    (decision,) = decide(snapshot(cluster({"a": 99}), waiting), BACE).decisions
    assert isinstance(decision, Reject)
    (reason,) = decision.reasons
    assert reason.code is ReasonCode.MEMORY_TOO_SMALL
    assert reason.needed == pytest.approx(150, rel=0.01)
    assert "even as 2 stages, the most with its `updates`" in reason.detail


def test_a_job_that_no_link_of_the_cluster_can_join_is_refused():
    world = cluster({"a": 2, "b": 2}, both_ways(("a", "b", 2)))
    (decision,) = decide(snapshot(world, job(weight_bytes=300)), BACE).decisions
    assert isinstance(decision, Reject)
    assert "no chain of links" in decision.reasons[0].detail
