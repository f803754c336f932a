"""Orders by local search: sound, never slower than what they begin from, at or near the proven optima."""

from __future__ import annotations

import numpy as np
import pytest

from scheduler.errors import InvalidValueError
from scheduler.pipeline.kernel import compiled
from scheduler.pipeline.plan import layouts, orders
from scheduler.pipeline.plan.generate import Generated, ListScheduler, generate
from scheduler.pipeline.plan.ir import Link, StageCost
from scheduler.pipeline.plan.memory import peak_bytes
from scheduler.pipeline.plan.passes import plan_of
from scheduler.pipeline.plan.search import _codes, polished, search
from scheduler.pipeline.plan.search_kernel import anneal
from scheduler.pipeline.plan.timing import timeline
from tests.plans import UNIT, chain_pipeline, links_between, pipeline_of
from tests.unit.scheduler_core.test_plan_generate import proven


@pytest.mark.parametrize("layout", [layouts.line(4), layouts.vee(4), layouts.loop(4, 2)])
@pytest.mark.parametrize("memory", [3, 6])
def test_what_it_finds_is_a_plan_as_fast_as_it_says_and_no_slower_than_its_start(layout, memory):
    regions = ["a", "a", "b", "b"]
    links = links_between(regions, 1.5, 0.25)
    if layout == layouts.loop(4, 2):  # from b back to a as well, over the link of the other way's gradients
        regions = ["a", "b", "c", "d"]
        links = links_between(regions, 1.5, 0.25)
    pipeline = pipeline_of(layout, UNIT, regions, links, memory)
    start = generate(pipeline, 8)
    found = search(pipeline, 8, start, rounds=1, steps=20_000)
    plan = plan_of(pipeline, found.order)
    assert max(peak_bytes(plan)) <= memory
    assert timeline(plan).makespan_s == pytest.approx(found.makespan_s, rel=1e-12)
    assert found.makespan_s <= start.makespan_s
    assert found == search(pipeline, 8, start, rounds=1, steps=20_000)


def test_it_finds_what_the_rules_do_not():
    cost = StageCost(76, 93, 41, inflight_bytes=1, pending_bytes=1)
    pipeline = chain_pipeline([cost] * 4, {1: (19, 19)}, memory_bytes=4)
    start = generate(pipeline, 8)
    assert start.makespan_s > 2216
    assert search(pipeline, 8, start, rounds=1, steps=60_000).makespan_s == 2216  # proven optimal


def test_a_whole_backward_is_split_where_that_is_faster():
    pipeline = chain_pipeline([UNIT] * 4, {}, memory_bytes=4)
    order = orders.one_f_one_b(4, 8)
    start = Generated(order, timeline(plan_of(pipeline, order)).makespan_s)
    assert search(pipeline, 8, start, rounds=1, steps=20_000).makespan_s < start.makespan_s


def test_machine_code_does_what_the_plain_loop_does():
    pipeline = pipeline_of(layouts.vee(2), UNIT, ["a", "b"], links_between(["a", "b"], 1.0, 0.5), 3)
    begin, code = _codes(generate(pipeline, 4).order, 4)
    arrays = ListScheduler(pipeline, 4).arrays
    results = []
    for loop in (anneal, compiled(anneal)):
        best = np.empty_like(code)
        results.append((loop(begin, code, *arrays, 4, 400, 0.03, 0.006, 3, best), best.tolist()))
    assert results[0] == results[1]


def test_an_order_that_comes_to_a_stand_is_refused():
    pipeline = pipeline_of(layouts.line(2), UNIT, ["a", "a"], [])
    good = generate(pipeline, 2)
    backwards_first = Generated((good.order[0][::-1], good.order[1]), 1e9)
    with pytest.raises(InvalidValueError, match="comes to a stand"):
        search(pipeline, 2, backwards_first, rounds=1, steps=10)


def test_a_link_on_which_two_ranks_send_is_refused():
    regions = ["a", "b", "a", "b"]
    links = [Link("a", "b", 1.0, 8.0), Link("b", "a", 1.0, 8.0)]
    pipeline = pipeline_of(layouts.line(4), UNIT, regions, links)
    with pytest.raises(InvalidValueError, match="one rank sends"):
        search(pipeline, 4, generate(pipeline, 4), rounds=1, steps=10)


@pytest.mark.shared_data
def test_the_rules_and_a_short_search_are_within_7_percent_of_every_proven_optimum(data_dir):
    by_rules = []
    for row, _, pipeline, micro_batches, optimum in proven(data_dir):
        made = polished(pipeline, micro_batches)
        assert optimum <= made.makespan_s <= 1.07 * optimum, row
        by_rules.append(generate(pipeline, micro_batches).makespan_s / optimum)
    assert max(by_rules) > 1.07, "the rules alone do not come so near"


@pytest.mark.shared_data
def test_the_search_reaches_the_proven_optima_of_four_stages(data_dir):
    for row, _, pipeline, micro_batches, optimum in proven(data_dir)[:10]:
        start = generate(pipeline, micro_batches)
        found = search(pipeline, micro_batches, start, rounds=4, steps=50_000)
        assert found.makespan_s == optimum, row
