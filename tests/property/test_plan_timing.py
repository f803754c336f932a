"""The timeline of a plan against the one of windows, against its plain twin, and what must hold of every plan."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.pipeline.plan import layouts, orders, split_orders
from scheduler.pipeline.plan.check import CyclicPlanError
from scheduler.pipeline.plan.ir import Link, Op, Plan, StageAction, StageCost, Worker
from scheduler.pipeline.plan.passes import place, plan_of
from scheduler.pipeline.plan.timing import timeline, timeline_in_python
from scheduler.pipeline.timeline import Chain, SendMode, simulate

seconds = st.floats(min_value=0.0, max_value=50.0).map(lambda value: round(value, 6))


def costs(draw, count: int) -> list[StageCost]:
    return [StageCost(draw(seconds), draw(seconds), draw(seconds), inflight_bytes=1) for _ in range(count)]


def links(draw, regions: list[str]) -> list[Link]:
    bandwidths = st.sampled_from([float("inf"), 0.25, 1.0, 3.0, 80.0])
    return [
        Link(one, other, draw(seconds), draw(bandwidths))
        for one in sorted(set(regions))
        for other in sorted(set(regions))
        if one != other
    ]


@st.composite
def windows(draw):
    """(plan, chain, window, micro-batches): a line, each rank in a region of its own or with its neighbour."""
    stages, micro_batches = draw(st.integers(1, 8)), draw(st.integers(1, 12))
    regions, region = ["0"], 0
    for _ in range(stages - 1):
        region += draw(st.integers(0, 1))
        regions.append(str(region))
    # The two directions of a boundary alike, as in a chain.
    between = {link.source + link.target: link for link in links(draw, regions)}
    alike = [
        Link(b, a, between[a + b].latency_s, between[a + b].bandwidth_bps)
        for a in set(regions)
        for b in set(regions)
        if a < b
    ]
    both = [*alike, *(Link(each.target, each.source, each.latency_s, each.bandwidth_bps) for each in alike)]
    pipeline = place(layouts.line(stages), costs(draw, stages), [Worker(each) for each in regions], both)
    caps = sorted((draw(st.integers(1, 14)) for _ in range(stages)), reverse=True)
    crossings = [pipeline.link(stage, stage + 1) for stage in range(stages - 1)]
    chain = Chain(
        tuple(stage.cost.forward_s for stage in pipeline.stages),
        tuple(stage.cost.backward_s for stage in pipeline.stages),
        tuple(link.latency_s if link else 0.0 for link in crossings),
        tuple(link.transfer_s(1) if link else 0.0 for link in crossings),
    )
    return plan_of(pipeline, orders.windowed(caps, micro_batches)), chain, tuple(caps), micro_batches


@settings(max_examples=80, deadline=None)
@given(windows(), st.sampled_from(SendMode))
def test_windows_take_what_their_own_timeline_says(made, send):
    plan, chain, window, micro_batches = made
    known = simulate(chain, window, micro_batches, send)
    assert timeline(plan, send).makespan_s == known.makespan_s
    assert plan.caps == known.peak_in_flight


@st.composite
def plans(draw) -> Plan:
    """Any published order on any costs, regions and links; or one whose actions were then shuffled a little."""
    ranks = draw(st.sampled_from([2, 4]))
    micro_batches = ranks * draw(st.integers(2, 3))
    layout, order = draw(
        st.sampled_from(
            [
                (layouts.line(ranks), orders.one_f_one_b(ranks, micro_batches)),
                (layouts.line(ranks), orders.gpipe(ranks, micro_batches)),
                (layouts.line(ranks), split_orders.zb_h1(ranks, micro_batches)),
                (layouts.loop(ranks, 2), orders.interleaved(ranks, 2, micro_batches)),
                (layouts.loop(ranks, 3), orders.looped_breadth_first(ranks, 3, micro_batches)),
                (layouts.vee(ranks), split_orders.zb_v(ranks, micro_batches)),
                (layouts.vee(ranks), split_orders.dual_pipe_v(ranks, micro_batches)),
                (layouts.vee(ranks), split_orders.v_half(ranks, micro_batches)),
                (layouts.both_ways(ranks), orders.chimera(ranks, micro_batches)),
            ]
        )
    )
    regions = [draw(st.sampled_from("abc")) for _ in range(ranks)]
    pipeline = place(
        layout, costs(draw, layout.stages), [Worker(each) for each in regions], links(draw, regions)
    )
    for _ in range(draw(st.integers(0, 3))):
        rank = draw(st.integers(0, ranks - 1))
        at = draw(st.integers(0, len(order[rank]) - 2))
        actions = list(order[rank])
        actions[at], actions[at + 1] = actions[at + 1], actions[at]
        shuffled = (*order[:rank], tuple(actions), *order[rank + 1 :])
        try:
            plan_of(pipeline, shuffled)
        except CyclicPlanError:
            continue
        order = shuffled
    return plan_of(pipeline, order)


@settings(max_examples=80, deadline=None)
@given(plans(), st.sampled_from(SendMode))
def test_the_compiled_timeline_is_the_plain_one(plan, send):
    assert timeline(plan, send) == timeline_in_python(plan, send)


@settings(max_examples=50, deadline=None)
@given(plans())
def test_a_timeline_keeps_every_dependency_and_no_rank_does_two_things_at_once(plan):
    made = timeline(plan)
    spans = {
        action: span
        for actions, times in zip(made.actions, made.spans, strict=True)
        for action, span in zip(actions, times, strict=True)
    }
    following = plan.pipeline.following
    for (stage, op, micro_batch), (start_s, end_s) in spans.items():
        if op is Op.FORWARD and (target := following[stage]) is not None:
            sent = spans.get(StageAction(stage, Op.SEND_FORWARD, micro_batch), (end_s, end_s))
            assert end_s <= sent[0] <= sent[1] <= spans[target, Op.FORWARD, micro_batch][0]
        if op.passes_gradient_back:
            assert spans[stage, Op.FORWARD, micro_batch][1] <= start_s
    for actions, times in zip(made.actions, made.spans, strict=True):
        computing = [span for action, span in zip(actions, times, strict=True) if action.op.computes]
        assert all(before[1] <= after[0] for before, after in pairwise(computing))


@settings(max_examples=40, deadline=None)
@given(plans())
def test_messages_over_one_link_never_overlap_and_keep_their_order(plan):
    made = timeline(plan)
    carried: dict[Link, list[tuple[float, float]]] = {}
    for rank, (actions, times) in enumerate(zip(made.actions, made.spans, strict=True)):
        for action, (start_s, arrived_s) in zip(actions, times, strict=True):
            if action.op in (Op.SEND_FORWARD, Op.SEND_BACKWARD):
                forward = action.op is Op.SEND_FORWARD
                target = (plan.pipeline.following if forward else plan.pipeline.preceding)[action.stage]
                link = plan.pipeline.link(rank, plan.pipeline.stages[target].rank)
                if link is not None:
                    carried.setdefault(link, []).append((start_s, arrived_s - link.latency_s))
    for spans in carried.values():
        spans.sort()
        assert all(before[1] <= after[0] + 1e-9 for before, after in pairwise(spans))
