"""The compiled timeline against the plain one, and what must hold for every pipeline whatever."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.pipeline.schedules import action_table
from scheduler.pipeline.timeline import Chain, SendMode, simulate, simulate_table

seconds = st.floats(min_value=0.0, max_value=50.0).map(lambda value: round(value, 6))


@st.composite
def pipelines(draw):
    """(chain, window, micro-batches): up to 9 stages, any delays, any window that does not grow."""
    stages = draw(st.integers(1, 9))
    micro_batches = draw(st.integers(1, 14))
    lists = [
        tuple(draw(st.lists(seconds, min_size=size, max_size=size)))
        for size in (stages, stages, stages - 1, stages - 1)
    ]
    caps = draw(st.lists(st.integers(1, 16), min_size=stages, max_size=stages))
    return Chain(*lists), tuple(sorted(caps, reverse=True)), micro_batches


@settings(max_examples=150, deadline=None)
@given(pipelines(), st.sampled_from(SendMode))
def test_the_compiled_timeline_is_the_plain_one(pipeline, send):
    chain, window, micro_batches = pipeline
    compiled = simulate(chain, window, micro_batches, send)
    plain = simulate_table(chain, action_table(window, micro_batches), send)
    assert compiled.makespan_s == plain.makespan_s
    assert compiled.peak_in_flight == plain.peak_in_flight == tuple(min(cap, micro_batches) for cap in window)


@settings(max_examples=100, deadline=None)
@given(pipelines())
def test_no_timeline_is_faster_than_its_slowest_stage_or_the_first_way_there_and_back(pipeline):
    chain, window, micro_batches = pipeline
    made = simulate(chain, window, micro_batches)
    assert made.makespan_s >= micro_batches * chain.pace_s * (1 - 1e-9)
    there_and_back = sum(chain.forward_s) + sum(chain.backward_s) + 2 * sum(chain.delay_s)
    assert made.makespan_s >= there_and_back * (1 - 1e-9)


@settings(max_examples=100, deadline=None)
@given(pipelines())
def test_waiting_for_a_message_never_helps(pipeline):
    chain, window, micro_batches = pipeline
    free = simulate(chain, window, micro_batches, SendMode.NON_BLOCKING)
    blocked = simulate(chain, window, micro_batches, SendMode.BLOCKING)
    assert free.makespan_s <= blocked.makespan_s * (1 + 1e-12)


@settings(max_examples=100, deadline=None)
@given(pipelines(), st.integers(0, 7), st.sampled_from(["latency_s", "transfer_s"]))
def test_a_slower_link_never_makes_an_iteration_faster(pipeline, boundary, which):
    chain, window, micro_batches = pipeline
    if chain.stages < 2:
        return
    times = {name: getattr(chain, name) for name in ("forward_s", "backward_s", "latency_s", "transfer_s")}
    slower = list(times[which])
    slower[boundary % len(slower)] += 5.0
    after = simulate(Chain(**times | {which: tuple(slower)}), window, micro_batches)
    assert after.makespan_s >= simulate(chain, window, micro_batches).makespan_s * (1 - 1e-12)
