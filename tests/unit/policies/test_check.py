"""Every kind of broken plan is caught by the check, and named."""

import itertools
from dataclasses import replace

import pytest

from scheduler.check import Rule, check_plan
from scheduler.cluster import Cluster, Node
from scheduler.evaluate import evaluate, in_its_order
from scheduler.job import Elasticity, PlacementRule, Schedule
from scheduler.pipeline.plan.laid_out import laid_out
from scheduler.placement import Cut, Placement, Segment, Transfer
from scheduler.plan import Decision, Hold, Move, Plan, Preempt, Reject, Start
from scheduler.policies import PolicyConfig, decide
from scheduler.reasons import Reason, ReasonCode
from scheduler.snapshot import Promise, RunningJob, Snapshot, StateSpan
from tests.worlds import both_ways, cluster, job, region, runs, snapshot

WORLD = cluster(
    {"a": 4, "b": 4, "c": 2},
    both_ways(("a", "b", 20), ("b", "c", 20)),
    [region("a", up=18), region("b", up=30, down=16), region("c")],
)


def chain(*stages: tuple[str, int], bandwidth_bps: float = 8.0, latency_s: float = 0.01) -> Placement:
    segments = tuple(Segment(name, "g", count, 1) for name, count in stages)
    cuts = tuple(Cut(a.region, b.region, bandwidth_bps, latency_s) for a, b in itertools.pairwise(segments))
    total = sum(count for _, count in stages)
    return Placement(segments, cuts, Schedule.ONE_F_ONE_B, tuple(range(total, 0, -1)))


def start(placement: Placement, job_id: str = "j", predicted_s: float = 1.0) -> Start:
    return Start(job_id, placement, predicted_s, "because")


def rules(snap: Snapshot, *decisions: Decision, version: int = 1) -> set[Rule]:
    return {violation.rule for violation in check_plan(snap, Plan(version, decisions))}


def broken(placement: Placement, waiting=None) -> set[Rule]:
    return rules(snapshot(WORLD, waiting or job()), start(placement))


def test_a_good_plan_has_nothing_wrong():
    assert broken(chain(("a", 4), ("b", 4))) == set()


def test_every_waiting_job_is_decided_once_and_nobody_else():
    snap = snapshot(WORLD, job("j"), job("k"))
    hold = Hold("j", 1, (Reason(ReasonCode.GPUS_EXHAUSTED, "x"),))
    assert rules(snap, hold) == {Rule.ONCE_EACH}
    assert rules(snap, hold, replace(hold, job_id="k")) == set()
    assert rules(snap, hold, hold, replace(hold, job_id="k")) == {Rule.ONCE_EACH}
    assert rules(snap, hold, replace(hold, job_id="k"), replace(hold, job_id="ghost")) == {Rule.ONCE_EACH}


def test_a_plan_for_another_snapshot_is_stale():
    assert rules(snapshot(WORLD), version=2) == {Rule.VERSION}


def test_nobody_waits_or_is_refused_without_a_reason():
    snap = snapshot(WORLD, job("j"))
    assert rules(snap, Hold("j", 1, ())) == {Rule.REASONS}
    assert rules(snap, Hold("j", 0, (Reason(ReasonCode.GPUS_EXHAUSTED, "x"),))) == {Rule.REASONS}
    assert rules(snap, Reject("j", ())) == {Rule.REASONS}
    assert rules(snap, replace(start(chain(("a", 4))), why="")) == {Rule.REASONS}


def ordered(schedule: Schedule = Schedule.ZB_V, stages: int = 2, micro_batches: int = 4) -> Placement:
    """Two parts on each of so many stages in one region."""
    made = laid_out(schedule, stages, micro_batches)
    return Placement((Segment("a", "g", stages, 1),), (), schedule, made.caps, order=made.text)


def test_an_order_is_the_one_that_was_asked_for():
    zb_v = job(schedule=Schedule.ZB_V)
    assert broken(ordered(), zb_v) == set()
    assert broken(ordered(Schedule.LOOPED_BFS), job(schedule=Schedule.LOOPED_BFS)) == set()
    assert broken(ordered(Schedule.V_HALF), zb_v) == {Rule.ORDER}
    assert broken(ordered(), job()) == {Rule.ORDER}
    assert broken(chain(("a", 2)), zb_v) == {Rule.ORDER}
    assert broken(ordered(), job(schedule=Schedule.ZB_V, layers=6)) == {Rule.ORDER}
    untold = replace(
        zb_v, spec=replace(zb_v.spec, training=replace(zb_v.spec.training, splits_backward=False))
    )
    assert broken(ordered(), untold) == {Rule.ORDER}


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace("F", "", 1),
        lambda text: text + "W",
        lambda text: text.replace("w", "b", 1),
        lambda text: text.replace("f", "f0", 2),
        lambda text: text.replace("I", "B", 1),
        lambda text: text + "x",
    ],
)
def test_every_stage_of_an_order_does_all_of_every_micro_batch_once(change):
    good = ordered()
    bad = replace(good, order=(change(good.order[0]), *good.order[1:]))
    assert broken(bad, job(schedule=Schedule.ZB_V)) == {Rule.ORDER}
    few = ordered(micro_batches=5)
    assert broken(few, job(schedule=Schedule.ZB_V)) == {Rule.ORDER}


def test_the_memory_of_an_order_is_what_it_holds_at_once():
    waiting = job(schedule=Schedule.ZB_V, weight_bytes=8.0, inflight_bytes=80.0)
    held = max(laid_out(Schedule.ZB_V, 2, 4).held(1.0))  # of a quarter of the model each, 20 bytes
    most = 2 * 2 + held * 20
    for memory_bytes, expected in ((most / 0.95 + 1, set()), (most / 0.95 - 1, {Rule.MEMORY})):
        assert rules(snapshot(with_memory(memory_bytes), waiting), start(ordered())) == expected


def test_state_travels_to_both_parts_of_a_stage():
    waiting = replace(job(schedule=Schedule.ZB_V), state=(StateSpan("a", 8),))
    made = laid_out(Schedule.ZB_V, 2, 4)
    segments = (Segment("a", "g", 1, 1), Segment("b", "g", 1, 1))
    placement = Placement(segments, (Cut("a", "b", 8.0, 0.01),), Schedule.ZB_V, made.caps, order=made.text)
    snap = snapshot(WORLD, waiting)
    half = 8.0 * 4 / 8  # both parts of the second stage stand in the middle
    assert rules(snap, replace(start(placement), transfers=(Transfer("a", "b", half, 4.0),))) == set()
    assert rules(snap, start(placement)) == {Rule.TRANSFERS}


def test_a_gang_is_whole():
    assert broken(chain(("a", 4)), job(stages=(5, 8))) == {Rule.GANG}
    assert broken(chain(("a", 4)), job(stages=(1, 3))) == {Rule.GANG}
    assert broken(chain(("a", 4)), job(tensor=2)) == {Rule.GANG}
    assert broken(chain(("a", 4)), job(layers=3)) >= {Rule.GANG}


@pytest.mark.parametrize(
    "waiting",
    [
        job(placement=PlacementRule(regions=("b", "c"))),
        job(placement=PlacementRule(exclude=("a*",))),
        job(placement=PlacementRule(max_regions=1)),
        job(avoid=["a"]),
        job(require=["b", "c"]),
    ],
)
def test_regions_are_those_that_the_job_may_use(waiting):
    assert broken(chain(("a", 4), ("b", 4)), waiting) == {Rule.REGION_ALLOWED}


def test_cuts_run_over_links_that_exist_both_ways_with_their_latency():
    assert Rule.CHAIN in broken(chain(("a", 4), ("c", 1)))
    assert broken(chain(("a", 4), ("b", 4), latency_s=0.02)) == {Rule.CHAIN}
    one_way = cluster({"a": 4, "b": 4}, both_ways(("a", "b", 20))[:1])
    assert Rule.CHAIN in rules(snapshot(one_way, job()), start(chain(("a", 4), ("b", 4))))
    assert Rule.CHAIN in broken(chain(("a", 1), ("b", 1), ("a", 1), bandwidth_bps=1.0))


def test_a_bandwidth_is_finite():
    assert Rule.CHAIN in broken(chain(("a", 4), ("b", 4), bandwidth_bps=float("inf")))


def test_gpus_are_promised_once():
    assert broken(chain(("a", 5))) == {Rule.GPUS}
    assert broken(chain(("nowhere", 1))) == {Rule.GPUS}
    snap = snapshot(WORLD, job("j"), job("k"))
    found = check_plan(snap, Plan(1, (start(chain(("a", 3)), "j"), start(chain(("a", 2)), "k"))))
    assert [(each.rule, each.job_id) for each in found] == [(Rule.GPUS, "j, k")]
    assert "5 GPUs promised, 4 are free" in found[0].detail


def test_gpus_that_run_are_not_free():
    snap = snapshot(WORLD, job(), running=[runs(job("r"), chain(("a", 3)))])
    assert rules(snap, start(chain(("a", 1)))) == set()
    assert rules(snap, start(chain(("a", 2)))) == {Rule.GPUS}


def test_with_nodes_only_their_free_gpus_may_be_promised():
    nodes = (Node("n", "a", "g", (0, 1)),)
    world = Cluster(WORLD.gpu_types, WORLD.regions, WORLD.pools, WORLD.links, nodes)
    assert rules(snapshot(world, job()), start(chain(("a", 2)))) == set()
    assert rules(snapshot(world, job()), start(chain(("a", 3)))) == {Rule.GPUS}


def test_links_uplinks_and_downlinks_are_not_overbooked_with_what_runs():
    running = [runs(job("r"), chain(("a", 1), ("b", 1), bandwidth_bps=8.0))]
    snap = snapshot(WORLD, job(), running=running)
    assert rules(snap, start(chain(("a", 2), ("b", 2)))) == set()
    assert rules(snap, start(chain(("a", 2), ("b", 2), bandwidth_bps=9.0))) == {Rule.DOWNLINK}
    assert rules(snap, start(chain(("a", 2), ("b", 2), bandwidth_bps=10.5))) == {Rule.UPLINK, Rule.DOWNLINK}
    assert rules(snap, start(chain(("a", 2), ("b", 2), bandwidth_bps=12.5))) == {
        Rule.LINK,
        Rule.UPLINK,
        Rule.DOWNLINK,
    }


def test_two_cuts_of_one_region_share_its_downlink():
    assert broken(chain(("a", 2), ("b", 1), ("c", 2))) == set()
    assert broken(chain(("a", 2), ("b", 1), ("c", 2), bandwidth_bps=8.5)) == {Rule.DOWNLINK}


def test_a_capacity_that_shrank_under_what_runs_is_not_the_plans_fault():
    running = [runs(job("r"), chain(("a", 1), ("b", 1), bandwidth_bps=99.0))]
    snap = snapshot(WORLD, job(), running=running)
    assert rules(snap, start(chain(("c", 2)))) == set()


def test_rounding_of_a_sum_is_no_violation_but_a_bit_too_much_is():
    third = 18 / 3
    running = [runs(job(f"r{n}"), chain(("a", 1), ("b", 1), bandwidth_bps=16 / 3)) for n in range(2)]
    snap = snapshot(WORLD, job(), running=running)
    assert third == 6.0
    assert rules(snap, start(chain(("a", 1), ("b", 1), bandwidth_bps=16 / 3))) == set()
    assert rules(snap, start(chain(("a", 1), ("b", 1), bandwidth_bps=16 / 3 + 1e-6))) == {Rule.DOWNLINK}


def test_a_window_that_memory_does_not_hold_is_refused():
    # 8 stages of 10 bytes a micro-batch: nine in flight fit into 95 bytes with the weights, ten do not.
    waiting = job(inflight_bytes=80, micro_batches=32)
    placement = chain(("a", 4), ("b", 4))
    assert broken(placement, waiting) == set()
    greedy = replace(placement, window=(10, *placement.window[1:]))
    assert broken(greedy, waiting) == {Rule.MEMORY}
    # Until the gradients of its weights are done, a micro-batch holds its activations.
    assert broken(replace(placement, lag=(9 - placement.window[0], *(0,) * 7)), waiting) == set()
    assert broken(replace(placement, lag=(10 - placement.window[0], *(0,) * 7)), waiting) == {Rule.MEMORY}


@pytest.mark.parametrize("schedule", [Schedule.ZB_H1, Schedule.GENERATED])
def test_the_built_in_worker_holds_less_until_the_gradients_of_weights_are_done(schedule):
    waiting = job(schedule=schedule, micro_batches=6)
    training = replace(waiting.spec.training, builtin_layers=True)
    waiting = replace(waiting, spec=replace(waiting.spec, profile=None, training=training))
    roomy = with_memory(1e15)
    segments = (Segment("a", "g", 3, 1),)
    placement = evaluate(waiting.spec, roomy, segments, ()).placement
    found = in_its_order(waiting.spec, roomy, placement)
    assert found.placement.lag or found.placement.order
    assert 0 < found.stage_profiles[0].pending_share < 1
    for memory_bytes, expected in ((1.0001, set()), (0.9999, {Rule.MEMORY})):
        world = with_memory(max(found.peak_bytes) / 0.95 * memory_bytes)
        assert rules(snapshot(world, waiting), start(found.placement)) == expected


def with_memory(memory_bytes: float) -> Cluster:
    gpu = replace(WORLD.gpu_types["g"], memory_bytes=memory_bytes)
    return replace(WORLD, gpu_types={**WORLD.gpu_types, "g": gpu})


@pytest.mark.parametrize("predicted_s", [0.0, -1.0, float("nan"), float("inf")])
def test_a_prediction_is_a_time(predicted_s):
    assert rules(snapshot(WORLD, job()), start(chain(("a", 4)), predicted_s=predicted_s)) == {Rule.PREDICTION}


def test_a_planted_over_promise_in_a_real_plan_is_caught():
    snap = snapshot(WORLD, job("j"), job("k"))
    plan = decide(snap, PolicyConfig())
    assert check_plan(snap, plan) == ()
    first = plan.starts[0]
    twice = replace(plan, decisions=(first, replace(first, job_id="k" if first.job_id == "j" else "j")))
    assert Rule.GPUS in {violation.rule for violation in check_plan(snap, twice)}


def running(where: Placement, how: Elasticity = Elasticity.RESIZE, **more) -> RunningJob:
    waiting = job("r", **more)
    return runs(replace(waiting, spec=replace(waiting.spec, elasticity=how)), where)


def move(placement: Placement, *transfers: Transfer, job_id: str = "r", why: str = "because") -> Move:
    return Move(job_id, placement, 1.0, why, transfers)


def travel(src: str, dst: str, layers: int, bandwidth_bps: float = 4.0) -> Transfer:
    """So many of the eight layers of a job of 8 bytes."""
    return Transfer(src, dst, float(layers), bandwidth_bps)


def test_a_running_job_may_be_preempted_or_moved_once_and_is_told_why():
    snap = snapshot(WORLD, running=[running(chain(("a", 2)))])
    assert rules(snap, Preempt("r", "why")) == set()
    assert rules(snap, move(chain(("a", 4)))) == set()
    assert rules(snap, Preempt("r", "")) == rules(snap, move(chain(("a", 4)), why="")) == {Rule.REASONS}
    assert rules(snap, Preempt("r", "why"), move(chain(("a", 4)))) == {Rule.ONCE_EACH}
    assert rules(snap, Hold("r", 1, (Reason(ReasonCode.GPUS_EXHAUSTED, "x"),))) == {Rule.ONCE_EACH}


def test_only_what_runs_and_is_not_stopping_is_stopped():
    stopping = replace(running(chain(("a", 2))), stopping=True)
    for decision in (Preempt("r", "why"), move(chain(("a", 4)))):
        assert rules(snapshot(WORLD, running=[stopping]), decision) == {Rule.RUNNING}
        assert rules(snapshot(WORLD), decision) == {Rule.ONCE_EACH, Rule.RUNNING}
        assert Rule.RUNNING in rules(snapshot(WORLD, job("r")), decision)


def test_a_promised_job_is_decided_already():
    promised = Promise(job("p").spec, chain(("a", 1)), 10, 2)
    snap = replace(snapshot(WORLD), promised=(promised,))
    assert Rule.ONCE_EACH in rules(snap, start(chain(("a", 1)), "p"))


def test_elasticity_says_what_may_be_done_to_a_running_job():
    rigid = snapshot(WORLD, running=[running(chain(("a", 2)), how=Elasticity.NONE)])
    assert rules(rigid, Preempt("r", "why")) == {Rule.ELASTICITY}
    fixed = snapshot(WORLD, running=[running(chain(("a", 2)), how=Elasticity.RESTART)])
    assert rules(fixed, Preempt("r", "why")) == set()
    assert rules(fixed, move(chain(("a", 3)))) == {Rule.ELASTICITY}
    assert rules(fixed, move(chain(("b", 2)), travel("a", "b", 8))) == set()


def test_a_job_that_must_keep_its_stages_starts_with_them():
    waiting = replace(job(generation=2), stages=3)
    assert broken(chain(("a", 3)), waiting) == set()
    assert broken(chain(("a", 4)), waiting) == {Rule.ELASTICITY}


def test_a_move_keeps_every_rule_of_a_start():
    snap = snapshot(WORLD, running=[running(chain(("a", 2)), stages=(1, 3))])
    assert rules(snap, move(chain(("a", 4)))) == {Rule.GANG}
    snap = snapshot(WORLD, running=[running(chain(("a", 2)), placement=PlacementRule(exclude=("b",)))])
    assert rules(snap, move(chain(("b", 2)), travel("a", "b", 8))) == {Rule.REGION_ALLOWED}
    snap = snapshot(WORLD, running=[running(chain(("a", 2)))])
    assert rules(snap, replace(move(chain(("a", 2))), predicted_iteration_s=0.0)) == {Rule.PREDICTION}


def test_exactly_what_lies_elsewhere_travels():
    waiting = replace(job(generation=2), state=(StateSpan("a", 3), StateSpan("b", 5)))
    snap = snapshot(WORLD, waiting)

    def travels(*transfers: Transfer) -> set[Rule]:
        return rules(snap, replace(start(chain(("b", 2))), transfers=transfers))

    assert travels(travel("a", "b", 3)) == set()
    assert travels() == {Rule.TRANSFERS}
    assert travels(travel("a", "b", 4)) == {Rule.TRANSFERS}
    assert travels(travel("b", "a", 3)) == {Rule.TRANSFERS}
    assert travels(travel("a", "b", 3, 2.0), travel("a", "b", 3, 2.0)) == {Rule.TRANSFERS}
    assert travels(travel("a", "b", 3, float("inf"))) >= {Rule.TRANSFERS}
    both = chain(("a", 1), ("b", 1))  # four layers each: one of those that lie in b goes to a
    assert rules(snap, replace(start(both), transfers=(travel("b", "a", 1),))) == set()


def test_state_does_not_travel_where_there_is_no_link():
    waiting = replace(job(generation=2), state=(StateSpan("a", 8),))
    sent = replace(start(chain(("c", 2))), transfers=(travel("a", "c", 8),))
    assert Rule.TRANSFERS in rules(snapshot(WORLD, waiting), sent)


def test_a_job_that_restarts_still_has_its_state_where_it_lay():
    restarting = replace(running(chain(("a", 2))), ready_s=5.0, state=(StateSpan("b", 8),))
    to_b = chain(("b", 2))
    assert rules(snapshot(WORLD, running=[restarting]), move(to_b)) == set()
    ready = replace(restarting, ready_s=0.0)
    assert rules(snapshot(WORLD, running=[ready]), move(to_b)) == {Rule.TRANSFERS}
    assert rules(snapshot(WORLD, running=[ready]), move(to_b, travel("a", "b", 8))) == set()


def test_what_stopping_jobs_leave_may_be_promised_once():
    stopping = replace(running(chain(("a", 3))), stopping=True)
    snap = snapshot(WORLD, job(), running=[stopping])
    assert rules(snap, start(chain(("a", 4)))) == set()
    promised = replace(snap, promised=(Promise(job("p").spec, chain(("a", 1)), 10, 1),))
    assert rules(promised, start(chain(("a", 4)))) == {Rule.GPUS}
    assert rules(promised, start(chain(("a", 3)))) == set()


def test_what_a_plan_stops_may_be_given_away_by_it():
    snap = snapshot(WORLD, job(), running=[running(chain(("a", 3)))])
    assert rules(snap, start(chain(("a", 4)))) == {Rule.GPUS}
    assert rules(snap, start(chain(("a", 4))), Preempt("r", "why")) == set()
    moved = move(chain(("a", 1)))
    assert rules(snap, start(chain(("a", 3))), moved) == set()
    assert rules(snap, start(chain(("a", 4))), moved) == {Rule.GPUS}


def test_with_nodes_what_stops_comes_back():
    nodes = (Node("n", "a", "g", (0, 1)),)
    world = Cluster(WORLD.gpu_types, WORLD.regions, WORLD.pools, WORLD.links, nodes)
    snap = snapshot(world, job(), running=[running(chain(("a", 2)))])
    assert rules(snap, start(chain(("a", 4)))) == {Rule.GPUS}
    assert rules(snap, start(chain(("a", 4))), Preempt("r", "why")) == set()


def test_bandwidth_of_transfers_promises_and_cuts_is_counted_together():
    travelling = replace(
        running(chain(("c", 1))),
        ready_s=5.0,
        state=(StateSpan("b", 8),),
        transfers=(travel("b", "c", 8, 9.0),),
    )
    snap = snapshot(WORLD, job(), running=[travelling])
    cut = chain(("b", 1), ("c", 1), bandwidth_bps=11.0)
    assert rules(snap, start(cut)) == set()
    assert rules(snap, start(replace(cut, cuts=(replace(cut.cuts[0], bandwidth_bps=12.0),)))) == {Rule.LINK}
    promise = Promise(job("p").spec, chain(("b", 1)), 10, 2, (travel("a", "b", 8, 6.0),))
    busy = replace(snap, promised=(promise,))
    assert rules(busy, start(cut)) == {Rule.DOWNLINK}  # of b, 16 wide: 6 of the promise and 11 of the cut
    sent = replace(job(generation=2), state=(StateSpan("a", 8),))
    to_b = replace(start(chain(("b", 2))), transfers=(travel("a", "b", 8, 10.0),))
    assert rules(replace(busy, waiting=(sent,)), to_b) == set()
    wide = replace(to_b, transfers=(travel("a", "b", 8, 10.5),))
    assert rules(replace(busy, waiting=(sent,)), wide) == {Rule.DOWNLINK}
    wider = replace(to_b, transfers=(travel("a", "b", 8, 12.5),))
    assert rules(replace(busy, waiting=(sent,)), wider) == {Rule.DOWNLINK, Rule.UPLINK}


def test_the_check_shares_no_code_with_those_who_plan():
    import ast
    from pathlib import Path

    import scheduler.check

    trees = [ast.parse(path.read_text()) for path in Path(scheduler.check.__file__).parent.glob("*.py")]
    imported = {node.module for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert "scheduler.profile" in imported
    planners = (
        "policies",
        "network",
        "restart",
        "options",
        "pathfinder",
        "allocator",
        "chain_search",
        "priority",
    )
    assert not {
        name for name in imported if name and name.startswith(tuple(f"scheduler.{p}" for p in planners))
    }
