"""Published schedules: their orders, their makespans, bubbles and memory."""

from __future__ import annotations

import csv

import pytest

from scheduler.pipeline.plan import layouts, orders, split_orders
from scheduler.pipeline.plan.ir import StageCost, Worker
from scheduler.pipeline.plan.memory import peak_bytes
from scheduler.pipeline.plan.passes import place, plan_of
from scheduler.pipeline.plan.timing import timeline
from scheduler.pipeline.timeline import SendMode
from tests.plans import UNIT, chain_pipeline, every_hop, links_between, pipeline_of, together

SCHEDULES = {
    "gpipe": (layouts.line, orders.gpipe),
    "1f1b": (layouts.line, orders.one_f_one_b),
    "looped-bfs": (lambda ranks: layouts.loop(ranks, 2), lambda k, m: orders.looped_breadth_first(k, 2, m)),
    "interleaved": (lambda ranks: layouts.loop(ranks, 2), lambda k, m: orders.interleaved(k, 2, m)),
    "zb-h1": (layouts.line, split_orders.zb_h1),
    "zb-v": (layouts.vee, split_orders.zb_v),
    "dual-pipe-v": (layouts.vee, split_orders.dual_pipe_v),
    "v-half": (layouts.vee, split_orders.v_half),
}


def makespan_s(name: str, ranks: int, micro_batches: int, latency_s: float, cost: StageCost = UNIT) -> float:
    layout, order = SCHEDULES[name]
    return timeline(every_hop(layout(ranks), order(ranks, micro_batches), latency_s, cost)).makespan_s


# Known makespans of torch's built-in schedules, F = I = W = 1, two chunks a rank: without delay, and with one F a hop.
MAKESPANS = {
    (4, 8): {
        "gpipe": (33, 39),
        "1f1b": (33, 49),
        "looped-bfs": (28.5, 36.5),
        "interleaved": (28.5, 46),
        "zb-v": (25.5, 41.5),
        "dual-pipe-v": (25.5, 45),
    },
    (8, 32): {
        "gpipe": (117, 131),
        "1f1b": (117, 185),
        "looped-bfs": (106.5, 120.5),
        "interleaved": (106.5, 155.5),
        "zb-v": (99.5, 137.5),
        "dual-pipe-v": (99.5, 161),
    },
}


@pytest.mark.parametrize(("ranks", "micro_batches"), MAKESPANS)
def test_makespans_are_the_known_ones_with_and_without_delay(ranks, micro_batches):
    made = {
        name: (makespan_s(name, ranks, micro_batches, 0.0), makespan_s(name, ranks, micro_batches, 1.0))
        for name in MAKESPANS[ranks, micro_batches]
    }
    assert made == MAKESPANS[ranks, micro_batches]


@pytest.mark.parametrize(("ranks", "micro_batches"), MAKESPANS)
def test_what_is_fastest_without_delay_is_not_with_it(ranks, micro_batches):
    at = {
        latency: {name: makespan_s(name, ranks, micro_batches, latency) for name in SCHEDULES}
        for latency in (0.0, 1.0)
    }
    assert min(at[0.0], key=at[0.0].__getitem__) in ("zb-v", "dual-pipe-v")
    assert min(at[1.0], key=at[1.0].__getitem__) == "looped-bfs"
    assert at[0.0]["gpipe"] > at[0.0]["dual-pipe-v"]
    assert at[1.0]["gpipe"] < at[1.0]["zb-v"] < at[1.0]["dual-pipe-v"]


@pytest.mark.parametrize(("ranks", "micro_batches"), [(2, 4), (4, 8), (8, 32)])
@pytest.mark.parametrize("cost", [UNIT, StageCost(1, 1, 0.5, inflight_bytes=1, pending_bytes=1)])
def test_bubbles_are_those_of_the_closed_forms(ranks, micro_batches, cost):
    work_s = micro_batches * (cost.forward_s + cost.backward_s)
    bubble_s = {name: makespan_s(name, ranks, micro_batches, 0.0, cost) - work_s for name in SCHEDULES}
    strict_s = (ranks - 1) * (cost.forward_s + cost.backward_s)
    assert bubble_s["1f1b"] == bubble_s["gpipe"] == strict_s
    assert bubble_s["interleaved"] == bubble_s["looped-bfs"] == strict_s / 2
    # (K − 1)(F + I − W): with I + W the backward, what DeepSeek's table calls (PP − 1)(F + B − 2W).
    assert bubble_s["zb-h1"] == (ranks - 1) * (cost.forward_s + cost.backward_s - 2 * cost.weight_gradient_s)


def test_zb_v_has_hardly_a_bubble_and_v_half_about_half_of_1f1b():
    for ranks, micro_batches in ((4, 16), (8, 32), (16, 64)):
        strict_s = 3.0 * (ranks - 1)
        # ZB-V: none but the way of the first micro-batch down the ranks.
        assert makespan_s("zb-v", ranks, micro_batches, 0.0) - 3 * micro_batches == (ranks - 1) / 2
        v_half_s = makespan_s("v-half", ranks, micro_batches, 0.0) - 3 * micro_batches
        assert strict_s / 2 <= v_half_s <= strict_s / 2 * 1.25


def test_memory_is_what_the_schedules_are_known_for():
    ranks, micro_batches = 8, 32
    held = {
        name: peak_bytes(together(layout(ranks), order(ranks, micro_batches)))
        for name, (layout, order) in SCHEDULES.items()
    }
    assert held["gpipe"] == (micro_batches,) * ranks
    assert held["1f1b"] == tuple(ranks - stage for stage in range(ranks))
    assert held["zb-h1"] == held["zb-v"] == (ranks,) * ranks
    # Narayanan et al.: 1F1B's × (1 + (p − 1)/(p·v)) on the first rank.
    assert held["interleaved"][0] == ranks * (1 + (ranks - 1) / (2 * ranks))
    assert max(held["dual-pipe-v"]) == ranks + 0.5
    assert ranks / 2 <= max(held["v-half"]) <= ranks / 2 + 1.5


def test_fewer_micro_batches_than_stages_are_all_that_is_in_flight():
    assert together(layouts.line(4), orders.one_f_one_b(4, 2)).caps == (2, 2, 2, 1)
    assert together(layouts.line(4), split_orders.zb_h1(4, 2)).caps == (2, 2, 2, 2)


@pytest.mark.parametrize("ranks", [2, 4, 6, 8])
@pytest.mark.parametrize("units", [1, 2, 4])
def test_chimera_has_the_published_bubble(ranks, units):
    micro_batches = units * ranks
    layout, order = layouts.both_ways(ranks), orders.chimera(ranks, micro_batches)
    pipeline = place(
        layout,
        [StageCost(1, 0.5, 0.5)] * layout.stages,
        [Worker("here")] * ranks,
    )
    equal = timeline(plan_of(pipeline, order))
    assert equal.bubble_fraction == pytest.approx((ranks - 2) / (2 * micro_batches + ranks - 2))
    if units == 1:  # with longer backwards the published bubble of several units is that of forwards in pairs
        pipeline = place(layout, [UNIT] * layout.stages, pipeline.workers)
        longer = timeline(plan_of(pipeline, order))
        assert longer.bubble_fraction == pytest.approx((ranks - 2) / (1.5 * micro_batches + ranks - 2))
        # Critical path: N forwards and N + D − 2 backwards.
        assert longer.makespan_s == micro_batches + (micro_batches + ranks - 2) * 2


def test_chimera_for_four_ranks_is_the_published_one_slot_by_slot():
    slots = ["."] * 10
    for slot, (stage, op, _) in orders.chimera_slots(4, 4)[0]:
        slots[slot] = f"{op}{'u' if stage >= 4 else '0'}"
    assert " ".join(slots) == "F0 . F0 Fu Bu Fu Bu B0 . B0"


FORWARD_S, WEIGHT_S = 0.038, 0.0205
INPUT_S = 0.151 * 16 / 23 - FORWARD_S - WEIGHT_S
"""CrossPipe's M70: F as printed; F + I + W from 1F1B's row without delay, (M + K − 1)(F + I + W), and W from ZB-H1's
0.133 s: M(F + I + W) + (K − 1)(F + I − W). No other row is used, and no other case."""


def crosspipe(data_dir, case: int):
    """(row, name, timeline function) for the three schedules of each published row of a case."""
    with (data_dir / "oracles" / "crosspipe_m70.csv").open(encoding="utf-8", newline="") as lines:
        rows = [
            row
            for row in csv.DictReader(line for line in lines if line[0] != "#")
            if int(row["case"]) == case
        ]
    # Case 2 recomputes: the gradient of the input holds a forward more.
    cost = StageCost(FORWARD_S, INPUT_S + (FORWARD_S if case == 2 else 0), WEIGHT_S)
    micro_batches = {1: 16, 2: 32}[case]
    for row in rows:
        latency_s, transfer_s = float(row["t_lat"]) * FORWARD_S, float(row["t_bw"]) * FORWARD_S
        regions = [f"dc{rank * int(row['dcs']) // 8}" for rank in range(8)]
        links = links_between(regions, latency_s, transfer_s)
        for name, column in (("1f1b", "1f1b"), ("zb-h1", "zbh1"), ("zb-v", "zbv")):
            layout, order = SCHEDULES[name]
            plan = plan_of(pipeline_of(layout(8), cost, regions, links), order(8, micro_batches))
            yield row, name, plan, micro_batches, float(row[column])


@pytest.mark.shared_data
@pytest.mark.parametrize(
    ("case", "within"),
    [(1, {"1f1b": 0.04, "zb-h1": 0.03, "zb-v": 0.09}), (2, {"1f1b": 0.025, "zb-h1": 0.04, "zb-v": 0.12})],
)
def test_blocking_sends_come_near_what_crosspipe_measured(data_dir, case, within):
    count = 0
    for row, name, plan, micro_batches, measured_s in crosspipe(data_dir, case):
        made_s = timeline(plan, SendMode.BLOCKING).makespan_s / micro_batches
        assert made_s == pytest.approx(measured_s, rel=within[name]), (name, row)
        count += 1
    assert count == 30


@pytest.mark.shared_data
@pytest.mark.parametrize("case", [1, 2])
def test_non_blocking_sends_are_never_slower_than_measured_where_there_is_delay(data_dir, case):
    for row, name, plan, micro_batches, measured_s in crosspipe(data_dir, case):
        if float(row["t_lat"]) or float(row["t_bw"]):
            assert timeline(plan).makespan_s / micro_batches <= measured_s, (name, row)


def test_a_slack_window_is_a_plan_like_any_other():
    pipeline = chain_pipeline([UNIT] * 4, {1: (2.0, 0.5)})
    assert plan_of(pipeline, orders.windowed((5, 4, 2, 1), 8)).caps == (5, 4, 2, 1)
