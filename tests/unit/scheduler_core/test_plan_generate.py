"""Generated orders: sound, near the proven optimum, never slower than what is published and fits; and the proof."""

from __future__ import annotations

from pathlib import Path

import pytest

from scheduler.bench.orders.proofs import Case, cases
from scheduler.errors import InvalidValueError
from scheduler.pipeline.plan import layouts, orders, split_orders
from scheduler.pipeline.plan.exact import best_order
from scheduler.pipeline.plan.generate import Rule, follow, generate, hanayo
from scheduler.pipeline.plan.ir import Op, StageCost, Worker
from scheduler.pipeline.plan.memory import OutOfMemoryError, peak_bytes
from scheduler.pipeline.plan.passes import place, plan_of
from scheduler.pipeline.plan.timing import timeline
from scheduler.pipeline.schedules import slack_window
from tests.pipelines import pipelines
from tests.plans import UNIT, chain_pipeline, links_between, pipeline_of, together


def proven(data_dir: Path) -> list[Case]:
    return list(cases(data_dir / "oracles" / "optimal_orders.csv"))


@pytest.mark.shared_data
def test_generated_orders_are_near_the_proven_optima(data_dir):
    rows = proven(data_dir)
    assert len(rows) == 37
    for row, freed_at, pipeline, micro_batches, optimum in rows:
        made = generate(pipeline, micro_batches)
        within = 1.05 if freed_at == "W" else 1.09
        assert optimum <= made.makespan_s <= within * optimum, row
        plan = plan_of(pipeline, made.order)  # which it fits
        assert timeline(plan).makespan_s == made.makespan_s


@pytest.mark.shared_data
def test_the_exact_twin_proves_the_known_optimum(data_dir):
    for row, _, pipeline, micro_batches, optimum in proven(data_dir)[:10]:
        best = best_order(pipeline, micro_batches, generate(pipeline, micro_batches), 1.0, limit_s=60)
        assert best.proven, row
        assert best.makespan_ticks == best.bound_ticks == optimum
        assert timeline(plan_of(pipeline, best.order)).makespan_s <= optimum


def test_on_a_line_it_is_never_slower_than_what_is_published_and_fits():
    for chain, micro_batches in pipelines(12, seed=17, most_stages=10, rounds=(1, 4)):
        costs = [
            StageCost(forward, backward / 2, backward / 2, inflight_bytes=1, pending_bytes=1)
            for forward, backward in zip(chain.forward_s, chain.backward_s, strict=True)
        ]
        cuts = {
            at: delays
            for at, delays in enumerate(zip(chain.latency_s, chain.transfer_s, strict=True))
            if any(delays)
        }
        pipeline = chain_pipeline(costs, cuts, memory_bytes=chain.stages)
        made = generate(pipeline, micro_batches)
        assert max(peak_bytes(plan_of(pipeline, made.order))) <= chain.stages
        window = slack_window(chain.delay_s, chain.pace_s, micro_batches)
        for order in (
            orders.one_f_one_b(chain.stages, micro_batches),
            orders.windowed(window, micro_batches),
            split_orders.zb_h1(chain.stages, micro_batches),
        ):
            try:
                published = plan_of(pipeline, order)
            except OutOfMemoryError:
                continue
            assert made.makespan_s <= timeline(published).makespan_s


@pytest.mark.parametrize("memory", [4, 5, 6, 9])
def test_on_a_v_it_never_comes_to_a_stand_however_little_fits(memory):
    # Half a byte a chunk: at least one micro-batch on each of a rank's two.
    regions = ["a", "a", "b", "b"]
    pipeline = pipeline_of(layouts.vee(4), UNIT, regions, links_between(regions, 1.5, 0.25), memory / 4)
    made = generate(pipeline, 8)
    plan = plan_of(pipeline, made.order)
    assert max(peak_bytes(plan)) <= memory / 4
    assert timeline(plan).makespan_s <= made.makespan_s


def test_split_backwards_take_no_longer_than_whole_ones():
    regions = ["a", "a", "b", "b"]
    pipeline = pipeline_of(layouts.line(4), UNIT, regions, links_between(regions, 1.0, 0.5), 6)
    whole = follow(pipeline, 12, Rule(False, (0,) * 4))
    made = generate(pipeline, 12)
    assert made.makespan_s < whole.makespan_s
    assert {action.op for actions in made.order for action in actions} >= {
        Op.INPUT_GRADIENT,
        Op.WEIGHT_GRADIENT,
    }
    assert {action.op for actions in whole.order for action in actions} == {Op.FORWARD, Op.BACKWARD}


def test_a_worker_without_room_for_one_micro_batch_is_refused():
    pipeline = pipeline_of(layouts.line(2), UNIT, ["a", "a"], [], memory_bytes=0.5)
    with pytest.raises(InvalidValueError, match="memory for a micro-batch"):
        generate(pipeline, 4)


def test_replicas_are_no_chain():
    pipeline = place(layouts.both_ways(2), [UNIT] * 4, [Worker("a")] * 2)
    with pytest.raises(InvalidValueError, match="one chain"):
        generate(pipeline, 4)


@pytest.mark.parametrize(
    ("ranks", "waves", "idle"),
    [(4, 1, 0.351), (4, 2, 0.238), (4, 4, 0.135), (8, 1, 0.385), (8, 2, 0.262), (8, 4, 0.150)],
)
def test_waves_are_idle_no_longer_than_a_greedy_table_of_them(ranks, waves, idle):
    plan = together(layouts.wave(ranks, waves), hanayo(ranks, waves, ranks))
    assert idle - 0.03 <= timeline(plan).bubble_fraction <= idle + 0.0005
