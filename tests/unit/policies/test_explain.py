"""A waiting job is told what it lacks, and what it is told would let it start does let it start."""

from dataclasses import replace

import pytest

from scheduler.errors import InvalidValueError
from scheduler.explain import Explanation, explain
from scheduler.job import PlacementRule, Recompute, Schedule
from scheduler.pipeline.plan.ir import LowRank
from scheduler.placement import Cut, Placement, Segment
from scheduler.plan import Start
from scheduler.policies import PolicyConfig, decide
from scheduler.reasons import ReasonCode
from tests.worlds import both_ways, cluster, job, runs, snapshot

BACE = PolicyConfig("bace")


def placed(world, waiting):
    (start,) = decide(snapshot(world, waiting), BACE).starts
    return start.placement


def verdicts(explanation: Explanation) -> dict[str, list[ReasonCode]]:
    return {each.region: [reason.code for reason in each.reasons] for each in explanation.regions}


def test_each_region_is_told_what_stands_against_it():
    world = cluster({"a": 4, "b": 1, "c": 9, "d": 1}, both_ways(("a", "b", 2), ("b", "d", 9)))
    running = [runs(job("r"), placed(cluster({"a": 4}), job("r", stages=(4, 4))))]
    waiting = job(stages=(2, 4), placement=PlacementRule(exclude=("c",)), activation_bits=64)
    told = explain(snapshot(world, waiting, running=running), BACE, "j")
    assert verdicts(told) == {
        "a": [ReasonCode.GPUS_EXHAUSTED],
        "b": [ReasonCode.LINK_BANDWIDTH_EXHAUSTED],  # 16 bit/s to d, which has the only other free GPU
        "c": [ReasonCode.REGION_FILTERED],
        "d": [ReasonCode.LINK_BANDWIDTH_EXHAUSTED],
    }
    a = told.regions[0]
    assert (a.free_gpus, a.stages) == (0, 0)
    assert "placement.exclude names c" in told.regions[2].reasons[0].detail


def test_the_position_counts_those_that_stay_waiting():
    world = cluster({"a": 8})
    snap = snapshot(world, *(job(f"j{n}", submit_s=n) for n in range(4)))
    assert [explain(snap, BACE, f"j{n}").position for n in range(4)] == [0, 1, 2, 3]
    assert explain(snap, BACE, "j3").queue_length == 3
    assert explain(snap, BACE, "j0").would_start == ("it starts in this round",)
    assert explain(snap, BACE, "j1").reasons[0].code is ReasonCode.BEHIND_IN_QUEUE


def test_the_job_whose_end_makes_room_is_named_with_when():
    world = cluster({"a": 8, "b": 2})
    long = runs(job("long"), placed(cluster({"a": 6}), job("long", stages=(4, 4))), steps=100)
    short = runs(job("short"), placed(cluster({"b": 2}), job("short", stages=(2, 2))), steps=1)
    snap = snapshot(world, job(stages=(8, 8)), running=[long, short])
    told = explain(snap, BACE, "j")
    assert told.blocking_jobs == ("long",)
    assert told.would_start[0].startswith("when long ends (in about ")
    (decision,) = decide(snapshot(world, job(stages=(8, 8)), running=[short]), BACE).decisions
    assert isinstance(decision, Start)


def test_where_no_single_end_is_enough_the_fewest_first_ends_are_named():
    world = cluster({"a": 8})
    running = [
        runs(job(f"r{n}"), placed(cluster({"a": 2}), job(f"r{n}", stages=(2, 2))), steps=n) for n in (3, 1, 2)
    ]
    told = explain(snapshot(world, job(stages=(6, 8)), running=running), BACE, "j")
    assert told.blocking_jobs == ("r1", "r2")
    assert told.would_start[0].startswith("when r1 and r2 have ended")


def test_fewer_stages_are_proposed_only_if_they_would_do():
    world = cluster({"a": 8})
    running = [runs(job("r"), placed(cluster({"a": 5}), job("r", stages=(5, 5))))]
    told = explain(snapshot(world, job(stages=(8, 8)), running=running), BACE, "j")
    assert "with parallelism.stages: 3 (now 8)" in told.would_start
    heavy = explain(snapshot(world, job(stages=(8, 8), weight_bytes=700), running=running), BACE, "j")
    assert not any("parallelism.stages" in fix for fix in heavy.would_start)


def test_the_bandwidth_that_is_missing_is_told():
    world = cluster({"a": 5, "b": 5}, both_ways(("a", "b", 10)))
    pair = cluster({"a": 1, "b": 1}, both_ways(("a", "b", 9)))
    other = job("r", stages=(2, 2), activation_bits=16)  # holds 4 bit/s
    running = [runs(other, placed(pair, other))]
    told = explain(snapshot(world, job(stages=(8, 8)), running=running), BACE, "j")
    assert any(fix.startswith("with 2 bps more between a and b") for fix in told.would_start)
    assert verdicts(told)["a"] == [ReasonCode.LINK_BANDWIDTH_EXHAUSTED]


def test_a_region_that_can_be_joined_over_one_link_is_not_blamed_for_another():
    links = both_ways(("a", "b", 9), ("a", "c", 1), ("b", "c", 1))
    world = cluster({"a": 2, "b": 2, "c": 2}, links)
    first = job("r", stages=(1, 1))
    running = [runs(first, placed(cluster({"c": 1}), first))]
    waiting = job(layers=6, stages=(5, 6))
    told = explain(snapshot(world, waiting, running=running), PolicyConfig("bace"), "j")
    assert verdicts(told)["a"] == verdicts(told)["b"] == []
    assert verdicts(told)["c"] == [ReasonCode.LINK_BANDWIDTH_EXHAUSTED] * 2


def test_a_rule_that_keeps_a_free_region_out_is_told():
    waiting = job(stages=(4, 4), placement=PlacementRule(regions=("a",)))
    running = [runs(job("r"), placed(cluster({"a": 4}), job("r", stages=(4, 4))))]
    told = explain(snapshot(cluster({"a": 4, "b": 4}), waiting, running=running), BACE, "j")
    assert "if its placement rule and cool-down let it use b:4" in told.would_start


def test_less_memory_by_recompute_is_proposed_only_if_it_would_do():
    from scheduler import presets

    world = cluster({"a": 8}, gpus=[presets.gpu("A100-80G")])
    spec = replace(job().spec, model=presets.model("llama-2-13b"), profile=None)
    spec = replace(
        spec, training=replace(spec.training, micro_batch=1, micro_batches=16, recompute=Recompute.NONE)
    )
    waiting = replace(job(), spec=spec)
    told = explain(snapshot(world, waiting), BACE, "j")
    assert told.reasons[0].code in {ReasonCode.MEMORY_TOO_SMALL, ReasonCode.NEVER_FITS}
    assert any("recompute: full" in fix for fix in told.would_start)
    eased = replace(waiting, spec=replace(spec, training=replace(spec.training, recompute=Recompute.FULL)))
    assert isinstance(decide(snapshot(world, eased), BACE).decisions[0], Start)


@pytest.mark.parametrize("held_bps", [0.0, 0.7e9])
def test_the_rank_with_which_a_cut_would_keep_up_is_told_where_it_would_do(held_bps):
    """On a link that is too narrow as it is, and on one of which another job holds a part."""
    from scheduler import presets

    world = cluster({"a": 3, "b": 3}, both_ways(("a", "b", 0.3e9 + held_bps)), gpus=[presets.gpu("A100-80G")])
    base = job(stages=(4, 4))
    training = replace(base.spec.training, micro_batch=1, micro_batches=16)
    spec = replace(base.spec, model=presets.model("llama-2-7b"), profile=None, training=training)
    waiting, other = replace(base, spec=spec), job("r", stages=(2, 2), seconds={"A100-80G": 8.0})
    segments = tuple(Segment(name, "A100-80G", 1, 1) for name in "ab")
    held = [Cut("a", "b", held_bps, 0.01)] if held_bps else []
    running = [runs(other, Placement(segments, (cut,), Schedule.ONE_F_ONE_B, (2, 1))) for cut in held]
    told = explain(snapshot(world, waiting, running=running), BACE, "j")
    (fix,) = [each for each in told.would_start if "parallelism.codec" in each]
    assert "changes what is learned" in fix
    assert "has 300 Mbps left, a cut needs 747 Mbps" in fix
    rank = int(fix.split("rank: ")[1].split("}")[0])

    def starts(with_rank):
        coded = replace(spec, parallelism=replace(spec.parallelism, codec=LowRank(with_rank)))
        snap = snapshot(world, replace(waiting, spec=coded), running=running)
        return isinstance(decide(snap, BACE).decisions[0], Start)

    assert starts(rank)
    assert not starts(rank + 1)
    untold = replace(waiting, spec=replace(spec, training=replace(training, splits_backward=False)))
    told = explain(snapshot(world, untold, running=running), BACE, "j")
    assert not any("codec" in each for each in told.would_start), "a command has none"


def test_in_a_strict_queue_the_head_is_named():
    world = cluster({"a": 8})
    running = [runs(job("r"), placed(cluster({"a": 4}), job("r", stages=(4, 4))))]
    snap = snapshot(
        world, job("large", priority=99, stages=(8, 8)), job("small", stages=(1, 1)), running=running
    )
    told = explain(snap, PolicyConfig("bace", strict=True), "small")
    assert told.reasons[0].code is ReasonCode.BLOCKED_BY_HEAD
    assert "large" in told.would_start[0]


def test_single_region_policies_name_the_regions_that_hold_too_little():
    snap = snapshot(cluster({"a": 4, "b": 2}), job(stages=(4, 4)), job("k", submit_s=1, stages=(4, 4)))
    told = explain(snap, PolicyConfig("fifo"), "k")
    assert verdicts(told) == {"a": [ReasonCode.GPUS_EXHAUSTED], "b": [ReasonCode.GPUS_EXHAUSTED]}
    assert (told.regions[1].reasons[0].needed, told.regions[1].reasons[0].available) == (4, 2)


def test_a_job_that_does_not_wait_is_an_error():
    with pytest.raises(InvalidValueError, match="a job that waits"):
        explain(snapshot(cluster({"a": 4})), BACE, "ghost")
