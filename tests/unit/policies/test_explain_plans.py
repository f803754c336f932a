"""A policy that decides over all jobs at once is explained by its own plans: place, reasons, and what would help."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scheduler import policies
from scheduler.explain import MOST_DECISIONS, explain
from scheduler.job import Elasticity, PlacementRule
from scheduler.plan import Hold, Plan, Preempt, Start
from scheduler.policies import PolicyConfig, decide
from scheduler.reasons import Reason, ReasonCode
from scheduler.snapshot import Snapshot
from tests.worlds import both_ways, cluster, job, runs, snapshot

HORIZON = PolicyConfig("horizon")
BACE = PolicyConfig("bace")


def placed(world, waiting):
    (start,) = decide(snapshot(world, waiting), BACE).starts
    return start.placement


def crowded():
    """Eight GPUs in a and two in b, all of them held: by a long job that stays, and by one that soon ends."""
    world = cluster({"a": 8, "b": 2}, both_ways(("a", "b", 100)))
    long = runs(job("long", stages=(8, 8)), placed(cluster({"a": 8}), job("long", stages=(8, 8))), steps=1000)
    short = runs(job("short", stages=(2, 2)), placed(cluster({"b": 2}), job("short", stages=(2, 2))), steps=2)
    return world, [long, short]


def test_place_and_reasons_are_those_of_the_plan():
    world, running = crowded()
    waiting = [job(f"w{number}", stages=(2, 2), steps=10 * (3 - number)) for number in range(3)]
    snap = snapshot(world, *waiting, running=running)
    plan = {each.job_id: each for each in decide(snap, HORIZON).decisions}
    for each in waiting:
        decision = plan[each.spec.job_id]
        assert isinstance(decision, Hold)
        told = explain(snap, HORIZON, each.spec.job_id)
        assert (told.position, told.reasons, told.queue_length) == (decision.position, decision.reasons, 3)
    assert [explain(snap, HORIZON, f"w{number}").position for number in range(3)] == [3, 2, 1], (
        "the shortest first, which is not the order of arrival"
    )


def test_the_job_whose_end_makes_room_is_named_and_its_end_does():
    world, running = crowded()
    snap = snapshot(world, job(stages=(2, 2)), running=running)
    told = explain(snap, HORIZON, "j")
    assert told.blocking_jobs == ("short",)
    assert told.would_start[0].startswith("when short ends (in about ")
    ended = replace(
        snap, running=tuple(replace(each, stopping=each.spec.job_id == "short") for each in running)
    )
    assert decide(ended, HORIZON).starts


def test_what_a_plan_gives_to_others_is_not_there_for_the_one_that_asks():
    world = cluster({"a": 4})
    snap = snapshot(world, job("first", stages=(4, 4), steps=5), job("second", stages=(4, 4), steps=500))
    told = explain(snap, HORIZON, "second")
    assert (told.position, told.queue_length) == (1, 1)
    (a,) = told.regions
    assert (a.free_gpus, [reason.code for reason in a.reasons]) == (0, [ReasonCode.GPUS_EXHAUSTED])
    assert explain(snap, HORIZON, "first").would_start == ("it starts in this round",)


def test_a_change_of_the_job_is_proposed_only_if_the_policy_would_start_it_then():
    world, running = crowded()
    busy = snapshot(
        cluster({"a": 8, "b": 3}, both_ways(("a", "b", 100))), job(stages=(4, 4)), running=running
    )
    assert "with parallelism.stages: 1 (now 4)" in explain(busy, HORIZON, "j").would_start
    bound = job(stages=(2, 2), placement=PlacementRule(regions=("a",)))
    free = snapshot(cluster({"a": 8, "b": 4}, both_ways(("a", "b", 100))), bound, running=running)
    fixes = explain(free, HORIZON, "j").would_start
    assert "if its placement rule and cool-down let it use b:2" in fixes
    full = snapshot(world, bound, running=running)
    assert not any("placement rule" in fix for fix in explain(full, HORIZON, "j").would_start)


def test_a_job_that_can_never_run_is_told_what_would_let_it():
    told = explain(snapshot(cluster({"a": 2}), job(stages=(4, 4))), HORIZON, "j")
    assert (told.position, told.reasons[0].code) == (0, ReasonCode.NEVER_FITS)
    assert any(fix.startswith("with parallelism.stages: ") for fix in told.would_start)
    assert told.blocking_jobs == ()


class Counting:
    """A policy that holds everybody, and counts how often it is asked."""

    name, meaning, replans = "counting", "Holds.", True
    verdicts = policies.POLICIES["bace"]

    def __init__(self) -> None:
        self.asked: list[Snapshot] = []

    def decide(self, snapshot: Snapshot, *, strict: bool, seed: int) -> Plan:
        self.asked.append(snapshot)
        reason = Reason(ReasonCode.GPUS_EXHAUSTED, "held")
        holds = [Hold(each.spec.job_id, place, (reason,)) for place, each in enumerate(snapshot.waiting, 1)]
        return Plan(snapshot.version, tuple(holds))


def test_an_explanation_asks_for_a_bounded_number_of_plans(monkeypatch: pytest.MonkeyPatch):
    counting = Counting()
    monkeypatch.setattr(policies, "POLICIES", {**policies.POLICIES, "counting": counting})
    one = job("r0", stages=(1, 1))
    running = [
        runs(job(f"r{number}", stages=(1, 1)), placed(cluster({"a": 1}), one), steps=number + 1)
        for number in range(40)
    ]
    snap = snapshot(cluster({"a": 40}), job(stages=(1, 1)), running=running)
    told = explain(snap, PolicyConfig("counting"), "j")
    assert told.would_start == ()
    assert len(counting.asked) == MOST_DECISIONS + 1
    assert all(len(world.waiting) == 1 for world in counting.asked[1:])


def test_a_plan_that_stops_somebody_is_looked_at_as_if_it_had(monkeypatch: pytest.MonkeyPatch):
    world, running = crowded()
    elastic = [replace(each, spec=replace(each.spec, elasticity=Elasticity.RESIZE)) for each in running]

    class Ejecting(Counting):
        def decide(self, snapshot: Snapshot, *, strict: bool, seed: int) -> Plan:
            held = super().decide(snapshot, strict=strict, seed=seed)
            if len(self.asked) > 1:
                return held
            start = Start("first", placed(cluster({"b": 2}), job("first", stages=(2, 2))), 1.0, "now")
            rest = [each for each in held.decisions if each.job_id != "first"]
            return Plan(snapshot.version, (start, Preempt("short", "for the first"), *rest))

    ejecting = Ejecting()
    monkeypatch.setattr(policies, "POLICIES", {**policies.POLICIES, "counting": ejecting})
    waiting = [job("first", stages=(2, 2)), job("second", stages=(2, 2))]
    told = explain(snapshot(world, *waiting, running=elastic), PolicyConfig("counting"), "second")
    after = ejecting.asked[1]
    assert [each.spec.job_id for each in after.running if each.stopping] == ["short"]
    assert [each.spec.job_id for each in after.promised] == ["first"]
    assert {each.region: each.free_gpus for each in told.regions} == {"a": 0, "b": 0}
