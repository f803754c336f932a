"""`auto`: the fastest of what fits, told truly, and never slower than what is published."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from scheduler import presets
from scheduler.cluster import Cluster, Region
from scheduler.evaluate import as_planned, evaluate
from scheduler.job import Recompute, Schedule
from scheduler.pipeline.plan import orders, split_orders
from scheduler.pipeline.plan.auto import (
    SplitChain,
    fastest,
    fastest_window,
    lagged_makespan_s,
    split_bound_s,
)
from scheduler.pipeline.plan.memory import peak_bytes, peaks_in_flight
from scheduler.pipeline.plan.passes import plan_of
from scheduler.pipeline.plan.stage_costs import SPLITTING, stage_costs
from scheduler.pipeline.plan.study import MEMORIES, Outcome, draw
from scheduler.pipeline.plan.timing import timeline
from scheduler.placement import Cut, Segment
from scheduler.policies.proposal import schedule_sentence
from scheduler.profile import Workload, in_flight_limit, stage_profiles
from tests.pipelines import equal_chain

A100 = presets.gpu("a100-80g")
CLUSTER = Cluster({"A100-80G": A100}, {name: Region(name) for name in "ab"}, {}, {})


def split_of(
    stages: int, limit: int, cuts: dict[int, tuple[float, float]], weight_s: float = 1.0
) -> SplitChain:
    return SplitChain(equal_chain(1.0, 2.0, stages, cuts), (weight_s,) * stages, (limit,) * stages)


@pytest.mark.parametrize("memory", MEMORIES)
def test_it_is_never_slower_than_1f1b_and_fitting_slack_1f1b_and_zb_h1(memory):
    found = Outcome.of(list(draw(1000, 7, memory)), fastest_window)
    assert found.worst_over_published <= 1 + 1e-9
    assert found.worst <= 0.99


def test_at_the_memory_of_1f1b_it_takes_three_quarters_of_its_time():
    found = Outcome.of(list(draw(300, 7, "K")), fastest_window)
    assert found.mean <= 0.75
    assert min(found.came_to[each] for each in (Schedule.ZB_H1, Schedule.LAGGED_1F1B)) > 20


def test_generated_orders_only_ever_make_it_faster():
    drawn = list(draw(12, 9, "K", most_stages=12))
    by_window, by_all = Outcome.of(drawn, fastest_window), Outcome.of(drawn, fastest)
    assert by_all.came_to[Schedule.GENERATED] > 0
    assert by_all.mean < by_window.mean
    assert by_all.worst_over_published <= 1 + 1e-9


def costly(drawn):
    """Where splitting a backward takes a tenth of it."""
    for each in drawn:
        splitting_s = tuple(0.1 * backward_s for backward_s in each.split.chain.backward_s)
        yield replace(each, split=replace(each.split, splitting_s=splitting_s))


def test_what_is_told_is_the_timeline_of_the_order_and_the_memory_holds_it():
    for memory in MEMORIES:
        for each in (*draw(8, 11, memory, most_stages=9), *costly(draw(6, 12, memory, most_stages=9))):
            for choose in (fastest_window, fastest):
                found = choose(each.split, each.micro_batches)
                splits = bool(found.lag) or (found.rule is not None and found.rule.split)
                pipeline = each.split.pipeline(split=splits)
                plan = plan_of(pipeline, found.order(each.split, each.micro_batches))
                assert timeline(plan).makespan_s == pytest.approx(found.makespan_s, rel=1e-12)
                held = peaks_in_flight(plan.pipeline, plan.actions)
                assert all(most <= limit for most, limit in zip(held, each.split.limits, strict=True))
                assert split_bound_s(each.split, each.micro_batches) <= found.makespan_s * (1 + 1e-9)


@pytest.mark.parametrize("lag", [(0, 0, 0, 0), (0, 1, 2, 3), (3, 3, 3, 3), (1, 0, 4, 2)])
def test_the_compiled_timeline_of_a_lag_is_that_of_its_plan(lag):
    split = split_of(4, 99, {0: (3.0, 0.5), 2: (0.25, 2.0)}, weight_s=0.7)
    window = (6, 4, 2, 1)
    plan = plan_of(split.pipeline(), split_orders.lagged(window, lag, 9))
    assert lagged_makespan_s(split, window, lag, 9) == pytest.approx(timeline(plan).makespan_s, rel=1e-12)


def test_without_delays_and_with_the_memory_of_1f1b_it_is_zb_h1():
    split = split_of(4, 4, {})
    found = fastest(split, 8)
    assert (found.schedule, found.window, found.lag) == (Schedule.ZB_H1, (4, 3, 2, 1), (0, 1, 2, 3))
    assert found.order(split, 8) == split_orders.zb_h1(4, 8)
    assert found.whole.schedule is Schedule.SLACK_1F1B
    assert found.makespan_s < found.whole.timeline.makespan_s == 33


def test_what_is_left_for_w_takes_less_memory_than_what_is_in_flight():
    split = replace(split_of(4, 6, {}), pending_share=(0.5,) * 4, limits=(6, 5, 5, 3))
    assert split.longest_lag((6, 4, 4, 1)) == (0, 2, 2, 4)
    assert replace(split, pending_share=()).longest_lag((6, 4, 4, 1)) == (0, 1, 1, 2)
    made = plan_of(split.pipeline(), split_orders.lagged((6, 4, 4, 1), (0, 2, 2, 4), 9))
    assert peak_bytes(made) == (6, 5, 5, 3)


def test_of_equally_fast_ones_it_takes_the_simplest():
    alone = fastest(split_of(1, 9, {}), 9)
    assert (alone.schedule, alone.window, alone.lag) == (Schedule.SLACK_1F1B, (1,), ())
    unsplit = split_of(4, 9, {1: (4.0, 0.0)}, weight_s=0.0)
    assert fastest_window(unsplit, 30).lag == ()


def test_where_not_even_1f1b_fits_that_is_the_answer():
    found = fastest(split_of(4, 3, {}), 9)
    assert (found.schedule, found.window, found.lag) == (Schedule.ONE_F_ONE_B, (4, 3, 2, 1), ())
    assert found.order(split_of(4, 3, {}), 9) == orders.one_f_one_b(4, 9)


def test_half_of_what_the_matrix_products_take_backward_is_the_gradient_of_weights(make_spec):
    spec = make_spec("llama-2-7b")
    costs = stage_costs(Workload.of(spec), (A100,) * 8)
    for cost, profile in zip(costs, stage_profiles(spec, (A100,) * 8), strict=True):
        assert cost.backward_s == pytest.approx(profile.backward_s)
        # Attention over 4096 positions is a seventh of the FLOPs of llama-2-7b's layers, and has no weights.
        # On the last stage the head has a tenth, and leaves nothing for later.
        share = cost.weight_gradient_s / profile.backward_s
        assert 0.428 < share < 0.44 if cost is not costs[-1] else 0.37 < share < 0.39
        assert cost.pending_bytes == cost.inflight_bytes == profile.inflight_bytes
    whole = stage_costs(Workload.of(make_spec("llama-2-7b", recompute=Recompute.FULL)), (A100,) * 8)
    assert {cost.weight_gradient_s for cost in whole} == {0.0}


def auto_spec(make_spec, splits: bool):
    spec = make_spec("llama-2-13b", micro_batches=16, schedule=Schedule.AUTO)
    return replace(spec, training=replace(spec.training, splits_backward=splits))


SEGMENTS = (Segment("a", "A100-80G", 4, 1), Segment("b", "A100-80G", 4, 1))
CUTS = (Cut("a", "b", 20e9, 0.05),)


def test_a_job_that_asks_for_auto_gets_it_where_its_workers_can_run_it(make_spec):
    found = evaluate(auto_spec(make_spec, True), CLUSTER, SEGMENTS, CUTS)
    assert found.fits
    assert found.placement.schedule in (Schedule.ZB_H1, Schedule.LAGGED_1F1B)
    assert len(found.placement.lag) == 8
    for window, lag, profile in zip(
        found.placement.window, found.placement.lag, found.stage_profiles, strict=True
    ):
        assert window + lag <= in_flight_limit(profile, A100)
    whole = evaluate(auto_spec(make_spec, False), CLUSTER, SEGMENTS, CUTS)
    assert (whole.placement.schedule, whole.placement.lag) == (Schedule.SLACK_1F1B, ())
    assert found.whole is not None
    assert found.whole.timeline.makespan_s == whole.timeline_s > found.timeline_s
    # What each stage computes does not change, so it is busier.
    assert all(a > b for a, b in zip(found.busy_fraction, whole.busy_fraction, strict=True))


def test_the_reason_tells_what_splitting_brings(make_spec):
    found = evaluate(auto_spec(make_spec, True), CLUSTER, SEGMENTS, CUTS)
    told = schedule_sentence(found)
    assert told is not None
    name, faster, memory = re.fullmatch(
        r"(\S+): ([\d.]+) % faster than slack-1f1b here, in ([\d.]+) GB of a GPU at most", told
    ).groups()
    assert name == found.placement.schedule.value
    assert float(faster) == pytest.approx(
        100 * (found.whole.timeline.makespan_s / found.timeline_s - 1), abs=0.1
    )
    assert 20 < float(memory) < 0.95 * 80
    assert schedule_sentence(evaluate(auto_spec(make_spec, False), CLUSTER, SEGMENTS, CUTS)) is None


def test_a_split_backward_costs_something_and_many_micro_batches_are_not_worth_it(make_spec):
    work = Workload.of(make_spec("llama-2-7b"))
    for whole, split in zip(
        stage_costs(work, (A100,) * 4), stage_costs(work, (A100,) * 4, split=True), strict=True
    ):
        assert split.backward_s == pytest.approx((1 + SPLITTING) * whole.backward_s)
        assert split.weight_gradient_s == whole.weight_gradient_s
    few = auto_spec(make_spec, True)
    many = replace(few, training=replace(few.training, micro_batches=1000))
    assert evaluate(few, CLUSTER, SEGMENTS, CUTS).placement.lag
    assert not evaluate(many, CLUSTER, SEGMENTS, CUTS).placement.lag


def test_as_planned_agrees_on_a_placement_with_a_lag(make_spec):
    spec = auto_spec(make_spec, True)
    found = evaluate(spec, CLUSTER, SEGMENTS, CUTS)
    assert as_planned(spec, CLUSTER, found.placement) == found
    assert as_planned(auto_spec(make_spec, False), CLUSTER, found.placement).iteration_s == found.iteration_s
