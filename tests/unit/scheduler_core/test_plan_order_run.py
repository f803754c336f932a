"""An order that is timed without its plan takes what its plan takes, to the last digit, and holds as much."""

from __future__ import annotations

import pytest

from scheduler.errors import InvalidValueError
from scheduler.pipeline.plan import layouts, orders, split_orders
from scheduler.pipeline.plan.generate import generate, hanayo
from scheduler.pipeline.plan.ir import Order, StageAction, StageCost
from scheduler.pipeline.plan.layouts import Layout
from scheduler.pipeline.plan.memory import peak_bytes
from scheduler.pipeline.plan.order_run import OPS, order_peak_bytes, run_order
from scheduler.pipeline.plan.passes import plan_of
from scheduler.pipeline.plan.timing import timeline
from tests.plans import links_between, pipeline_of

COST = StageCost(1.0, 1.25, 0.75, weight_bytes=40, inflight_bytes=2.0, pending_bytes=1.0)
REGIONS = ["a", "a", "b", "c"]
K, M = 4, 8
PUBLISHED: list[tuple[Layout, Order]] = [
    (layouts.line(K), orders.gpipe(K, M)),
    (layouts.line(K), orders.windowed((6, 4, 2, 1), M)),
    (layouts.line(K), split_orders.zb_h1(K, M)),
    (layouts.line(K), split_orders.lagged((6, 4, 2, 1), (0, 2, 1, 5), M)),
    (layouts.loop(K, 2), orders.interleaved(K, 2, M)),
    (layouts.loop(K, 2), orders.looped_breadth_first(K, 2, M)),
    (layouts.vee(K), split_orders.zb_v(K, M)),
    (layouts.vee(K), split_orders.dual_pipe_v(K, M)),
    (layouts.vee(K), split_orders.v_half(K, M)),
    (layouts.wave(K, 1), hanayo(K, 1, M)),
    (layouts.both_ways(K), orders.chimera(K, M)),
]


@pytest.mark.parametrize(("layout", "order"), PUBLISHED)
def test_it_agrees_with_the_plan_on_every_published_order(layout: Layout, order: Order) -> None:
    pipeline = pipeline_of(layout, COST, REGIONS, links_between(REGIONS, 0.75, 0.125))
    plan = plan_of(pipeline, order)
    expected, run = timeline(plan), run_order(pipeline, order)
    assert run.makespan_s == expected.makespan_s
    assert order_peak_bytes(pipeline, order) == pytest.approx(peak_bytes(plan), rel=1e-12)
    steps = [action for actions in expected.actions for action in actions]
    spans = [span for of_rank in expected.spans for span in of_rank]
    assert run.begin.tolist()[-1] == len(steps)
    for at, (action, (start_s, end_s)) in enumerate(zip(steps, spans, strict=True)):
        assert (run.stage[at], run.micro_batch[at]) == (action.stage, action.micro_batch)
        assert (run.sends[at] < 0) == action.op.computes
        if action.op.computes:
            assert OPS[run.op[at]] is action.op
        assert (run.start_s[at], run.end_s[at]) == (start_s, end_s)


def test_it_agrees_on_a_generated_order() -> None:
    pipeline = pipeline_of(layouts.line(K), COST, REGIONS, links_between(REGIONS, 2.0, 0.5), 50)
    made = generate(pipeline, M)
    assert run_order(pipeline, made.order).makespan_s == made.makespan_s


def test_ranks_that_wait_for_each_other_are_refused() -> None:
    pipeline = pipeline_of(layouts.line(2), COST, ["a", "a"], [])
    f, b = (lambda stage, op=op: StageAction(stage, op, 0) for op in OPS[:2])
    with pytest.raises(InvalidValueError, match="wait for each other"):
        run_order(pipeline, ((b(0), f(0)), (f(1), b(1))))
