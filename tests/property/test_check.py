"""Random legal plans over random worlds pass the check; whichever rule a change breaks is the one it names."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from scheduler.check import Rule, check_plan
from scheduler.cluster import Cluster, Link, Pool, Region
from scheduler.job import Elasticity, Schedule
from scheduler.network import Residual
from scheduler.placement import Placement, Transfer
from scheduler.plan import Decision, Move, Plan, Preempt, Start
from scheduler.restart import state_of
from scheduler.snapshot import Promise, Snapshot, StateSpan
from tests.restless import Restless
from tests.worlds import GPU, job, runs, snapshot

NAMES = ("a", "b", "c")
LARGE = replace(GPU, memory_bytes=1e9)
ROUNDS = 300
BUSY = Restless(start=0.9, preempt=0.2, move=0.6)


def world(dice: random.Random) -> Cluster:
    regions = {name: Region(name, 1.0, dice.uniform(20e6, 80e6), dice.uniform(20e6, 80e6)) for name in NAMES}
    links = {(a, b): Link(a, b, dice.uniform(8e6, 40e6), 0.01) for a, b in itertools.permutations(NAMES, 2)}
    pools = {(name, "g"): Pool(name, "g", dice.randint(2, 8)) for name in NAMES}
    return Cluster({"g": LARGE}, regions, pools, links)


def busy_snapshot(seed: int) -> Snapshot:
    """Jobs that run, restart, stop, wait with and without state, and are promised: as random plans left them."""
    dice = random.Random(seed)
    cluster = world(dice)

    def some(prefix: str, count: int):
        for index in range(count):
            schedule = dice.choice(
                [Schedule.ONE_F_ONE_B, Schedule.ONE_F_ONE_B, Schedule.V_HALF, Schedule.ZB_V]
            )
            made = job(
                f"{prefix}{index}", layers=12, weight_bytes=6e6, steps=50, micro_batches=12, schedule=schedule
            )
            how = dice.choice([Elasticity.RESIZE, Elasticity.RESIZE, Elasticity.RESTART, Elasticity.NONE])
            yield replace(made, spec=replace(made.spec, elasticity=how))

    early = list(some("r", 4))
    snap = snapshot(cluster, *early)
    by_id = {each.spec.job_id: each for each in early}
    held = [
        runs(by_id[start.job_id], start.placement)
        for start in Restless(start=1.0).decide(snap, strict=False, seed=seed).starts
    ]
    running, promised = [], []
    for each in held:
        fate = dice.choice(["runs", "restarts", "stops", "is promised"])
        if fate == "is promised":
            promised.append(Promise(each.spec, each.allocation.placement, 10, 2))
        elif fate == "restarts":
            state = (StateSpan(dice.choice(NAMES), 12),)
            running.append(replace(each, ready_s=9.0, state=state))
        else:
            running.append(
                replace(each, stopping=fate == "stops" and each.spec.elasticity != Elasticity.NONE)
            )
    waiting = [
        replace(each, generation=2, state=(StateSpan(dice.choice(NAMES), 12),))
        if dice.random() < 0.5
        else each
        for each in some("w", 4)
    ]
    return replace(
        snap, waiting=tuple(waiting), running=tuple(running), promised=tuple(promised), version=seed
    )


Break = Callable[[Snapshot, Plan], Iterator[Plan]]


def swapped(plan: Plan, old: Decision, *new: Decision) -> Plan:
    kept = [each for each in plan.decisions if each is not old]
    return replace(plan, decisions=(*kept, *new))


def begun(plan: Plan) -> Iterator[Start | Move]:
    return (each for each in plan.decisions if isinstance(each, Start | Move))


def wider(placement: Placement, factor: float) -> Placement:
    cuts = tuple(replace(cut, bandwidth_bps=cut.bandwidth_bps * factor) for cut in placement.cuts)
    return replace(placement, cuts=cuts)


def stale(snap: Snapshot, plan: Plan) -> Iterator[Plan]:
    yield replace(plan, snapshot_version=plan.snapshot_version + 1)


def said_twice(snap: Snapshot, plan: Plan) -> Iterator[Plan]:
    for each in plan.decisions:
        yield replace(plan, decisions=(*plan.decisions, each))


def left_out(snap: Snapshot, plan: Plan) -> Iterator[Plan]:
    waiting = {each.spec.job_id for each in snap.waiting}
    for each in plan.decisions:
        if each.job_id in waiting:
            yield swapped(plan, each)


def decides_promised(snap: Snapshot, plan: Plan) -> Iterator[Plan]:
    for each in snap.promised:
        yield replace(plan, decisions=(*plan.decisions, Preempt(each.spec.job_id, "why")))


def without_why(snap: Snapshot, plan: Plan) -> Iterator[Plan]:
    for each in plan.decisions:
        if isinstance(each, Start | Move | Preempt):
            yield swapped(plan, each, replace(each, why=""))


def stops_stopping(snap: Snapshot, plan: Plan) -> Iterator[Plan]:
    for each in snap.running:
        if each.stopping:
            yield replace(plan, decisions=(*plan.decisions, Preempt(each.spec.job_id, "why")))


def stops_rigid(snap: Snapshot, plan: Plan) -> Iterator[Plan]:
    for each in snap.running:
        if each.spec.elasticity is Elasticity.NONE:
            yield replace(plan, decisions=(*plan.decisions, Preempt(each.spec.job_id, "why")))


def sends_other_bytes(snap: Snapshot, plan: Plan) -> Iterator[Plan]:
    for each in begun(plan):
        for sent in each.transfers:
            rest = tuple(other for other in each.transfers if other is not sent)
            for changed in (replace(sent, sent_bytes=sent.sent_bytes * 1.001), None):
                kept = rest if changed is None else (*rest, changed)
                yield swapped(plan, each, replace(each, transfers=kept))


def sends_what_need_not_travel(snap: Snapshot, plan: Plan) -> Iterator[Plan]:
    for each in begun(plan):
        if not each.transfers:
            yield swapped(plan, each, replace(each, transfers=(Transfer("a", "b", 1.0, 1.0),)))


def takes_links_beyond(snap: Snapshot, plan: Plan) -> Iterator[Plan]:
    for each in begun(plan):
        if each.placement.cuts:
            yield swapped(plan, each, replace(each, placement=wider(each.placement, 100.0)))
        if each.transfers:
            fast = tuple(replace(sent, bandwidth_bps=sent.bandwidth_bps * 100) for sent in each.transfers)
            yield swapped(plan, each, replace(each, transfers=fast))


def forgets_a_stop_that_it_needs(snap: Snapshot, plan: Plan) -> Iterator[Plan]:
    """Only where somebody uses what the stopped job leaves."""
    for each in plan.preemptions:
        without = swapped(plan, each)
        residual = Residual.after_stops(snap)
        for stop in (*without.moves, *without.preemptions):
            old = next(job for job in snap.running if job.spec.job_id == stop.job_id)
            residual.give_back(old.allocation.placement, old.transfers)
        for other in begun(without):
            residual.take(other.placement, other.transfers)
        if any(gpus < 0 for gpus in residual._free.values()):
            yield without


def predicts_no_time(snap: Snapshot, plan: Plan) -> Iterator[Plan]:
    for each in begun(plan):
        yield swapped(plan, each, replace(each, predicted_iteration_s=0.0))


def nearer_than_it_is(snap: Snapshot, plan: Plan) -> Iterator[Plan]:
    for each in begun(plan):
        if each.placement.cuts:
            cuts = tuple(replace(cut, latency_s=cut.latency_s / 2) for cut in each.placement.cuts)
            yield swapped(plan, each, replace(each, placement=replace(each.placement, cuts=cuts)))


def lets_a_stage_hold_nothing(snap: Snapshot, plan: Plan) -> Iterator[Plan]:
    for each in begun(plan):
        window = (0, *each.placement.window[1:])
        yield swapped(plan, each, replace(each, placement=replace(each.placement, window=window)))


def gives_stages_other_gpus(snap: Snapshot, plan: Plan) -> Iterator[Plan]:
    for each in begun(plan):
        segments = tuple(replace(segment, gpus_per_stage=2) for segment in each.placement.segments)
        yield swapped(plan, each, replace(each, placement=replace(each.placement, segments=segments)))


def leaves_something_out(snap: Snapshot, plan: Plan) -> Iterator[Plan]:
    for each in begun(plan):
        if each.placement.order:
            first, *others = each.placement.order
            order = (first[:-1], *others)
            yield swapped(plan, each, replace(each, placement=replace(each.placement, order=order)))


def runs_another_schedule(snap: Snapshot, plan: Plan) -> Iterator[Plan]:
    others = {Schedule.V_HALF: Schedule.ZB_V, Schedule.ZB_V: Schedule.V_HALF}
    for each in begun(plan):
        other = others.get(each.placement.schedule)
        if other is not None:
            yield swapped(plan, each, replace(each, placement=replace(each.placement, schedule=other)))


BREAKS: dict[Rule, tuple[Break, ...]] = {
    Rule.VERSION: (stale,),
    Rule.ONCE_EACH: (said_twice, left_out, decides_promised),
    Rule.REASONS: (without_why,),
    Rule.RUNNING: (stops_stopping,),
    Rule.ELASTICITY: (stops_rigid,),
    Rule.TRANSFERS: (sends_other_bytes, sends_what_need_not_travel),
    Rule.LINK: (takes_links_beyond,),
    Rule.UPLINK: (takes_links_beyond,),
    Rule.DOWNLINK: (takes_links_beyond,),
    Rule.GPUS: (forgets_a_stop_that_it_needs,),
    Rule.PREDICTION: (predicts_no_time,),
    Rule.CHAIN: (nearer_than_it_is,),
    Rule.GANG: (lets_a_stage_hold_nothing, gives_stages_other_gpus),
    Rule.ORDER: (leaves_something_out, runs_another_schedule),
}


@pytest.fixture(scope="module")
def cases() -> list[tuple[Snapshot, Plan]]:
    snaps = [busy_snapshot(seed) for seed in range(ROUNDS)]
    return [(snap, BUSY.decide(snap, strict=False, seed=snap.version)) for snap in snaps]


def test_random_plans_within_the_rules_are_legal_and_rich(cases: list[tuple[Snapshot, Plan]]) -> None:
    for snap, plan in cases:
        assert check_plan(snap, plan) == (), snap.version
    assert sum(len(plan.moves) for _, plan in cases) > 100
    assert sum(len(plan.preemptions) for _, plan in cases) > 50
    assert sum(len(each.transfers) for _, plan in cases for each in begun(plan)) > 100


@pytest.mark.parametrize(
    ("rule", "change"), [(rule, each) for rule, changes in BREAKS.items() for each in changes]
)
def test_a_plan_that_breaks_a_rule_is_told_so(
    rule: Rule, change: Break, cases: list[tuple[Snapshot, Plan]]
) -> None:
    tried = 0
    for snap, plan in cases:
        for broken in change(snap, plan):
            tried += 1
            found = {violation.rule for violation in check_plan(snap, broken)}
            if change is takes_links_beyond:
                assert found & {Rule.LINK, Rule.UPLINK, Rule.DOWNLINK}
            else:
                assert rule in found, (snap.version, broken)
    assert tried >= 10


def test_a_move_to_other_stages_needs_a_job_that_may_be_resized(cases: list[tuple[Snapshot, Plan]]) -> None:
    tried = 0
    for snap, plan in cases:
        running = {each.spec.job_id: each for each in snap.running}
        for move in plan.moves:
            now = running[move.job_id]
            if now.allocation.placement.stages == move.placement.stages:
                continue
            tried += 1
            kept = replace(now, spec=replace(now.spec, elasticity=Elasticity.RESTART))
            others = [each for each in snap.running if each is not now]
            violations = check_plan(replace(snap, running=(*others, kept)), plan)
            assert {each.rule for each in violations} == {Rule.ELASTICITY}
    assert tried >= 10


def test_state_that_lies_elsewhere_than_told_is_found(cases: list[tuple[Snapshot, Plan]]) -> None:
    tried = 0
    for snap, plan in cases:
        waiting = {each.spec.job_id: each for each in snap.waiting}
        for start in plan.starts:
            stands = state_of(waiting[start.job_id].spec, start.placement)
            if waiting[start.job_id].state in ((), stands) or not start.transfers:
                continue
            tried += 1
            there = replace(waiting[start.job_id], state=stands)
            others = [each for each in snap.waiting if each.spec.job_id != start.job_id]
            violations = check_plan(replace(snap, waiting=(*others, there)), plan)
            assert {each.rule for each in violations} == {Rule.TRANSFERS}
    assert tried >= 10
