"""What a rank runs next: a strict order is kept, a hint runs what is ready, and nothing ever waits for ever."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Sequence

import pytest

from agents.protocol import WorkerPlan
from agents.worker.executor.decision import Decision, decision
from agents.worker.executor.from_wire import rank_plan
from agents.worker.executor.rank_plan import Action, RankPlan
from scheduler.pipeline.plan import layouts, orders, split_orders
from scheduler.pipeline.plan.communication import computations
from scheduler.pipeline.plan.generate import generate
from scheduler.pipeline.plan.ir import Order, Pipeline, Plan
from scheduler.pipeline.plan.layouts import Layout
from scheduler.pipeline.plan.passes import plan_of
from scheduler.pipeline.plan.timing import timeline
from tests.plans import every_hop
from tests.unit.worker.executor.virtual_time import StuckError, hints, jitter, run
from tests.wire_plans import rank_plans, wire_plan


def made(layout: Layout, order: Order, latency_s: float = 1.0) -> Plan:
    return every_hop(layout, order, latency_s)


def generated(pipeline: Pipeline, micro_batches: int) -> Plan:
    return plan_of(pipeline, generate(pipeline, micro_batches).order)


PLANS = {
    "gpipe": lambda: made(layouts.line(4), orders.gpipe(4, 8)),
    "1f1b": lambda: made(layouts.line(4), orders.one_f_one_b(4, 8)),
    "slack": lambda: made(layouts.line(4), orders.windowed((7, 6, 2, 1), 8)),
    "zb-h1": lambda: made(layouts.line(4), split_orders.zb_h1(4, 8)),
    "zb-v": lambda: made(layouts.vee(4), split_orders.zb_v(4, 8)),
    "interleaved": lambda: made(layouts.loop(4, 2), orders.interleaved(4, 2, 8)),
    "generated": lambda: generated(made(layouts.line(4), orders.gpipe(4, 8)).pipeline, 8),
}


@pytest.mark.parametrize("name", PLANS)
def test_a_strict_rank_runs_its_order_and_takes_the_time_that_the_scheduler_says(name: str) -> None:
    plan = PLANS[name]()
    told = timeline(plan)

    def seconds(action: Action) -> float:
        return plan.pipeline.stages[action.stage].cost.seconds(action.op)  # type: ignore[arg-type]

    makespan_s, computed = run(rank_plans(plan), seconds, lambda action: 1.0)

    assert [[str(each) for each in trace] for trace in computed] == [
        [str(each) for each in trace if each.op.computes] for trace in told.actions
    ]
    assert makespan_s == pytest.approx(told.makespan_s)


@pytest.mark.parametrize("window", [(4, 3, 2, 1), (7, 6, 2, 1), (12, 9, 5, 1)])
@pytest.mark.parametrize("binding", ["strict", "hint"])
def test_iterations_of_a_window_run_one_into_the_other_as_one_of_all_their_micro_batches(
    window: tuple[int, ...], binding: str
) -> None:
    plans = [rank_plan(window_plan(window, 6, binding), rank, 4) for rank in range(4)]
    whole = [rank_plan(window_plan(window, 18, binding), rank, 4) for rank in range(4)]

    assert run(plans, two_of_f, lambda action: 0.5, iterations=3) == run(whole, two_of_f, lambda action: 0.5)


def two_of_f(action: Action) -> float:
    return 1.0 if action.op == "F" else 2.0


def window_plan(window: Sequence[int], micro_batches: int, binding: str) -> WorkerPlan:
    plan = wire_plan(made(layouts.line(4), orders.gpipe(4, 4)), 0)
    changes = {"order": None, "window": list(window), "micro_batches": micro_batches, "binding": binding}
    return plan.model_copy(update=changes)


def test_a_strict_rank_does_not_choose_before_it_is_told_whether_its_next_forward_comes() -> None:
    chosen = decision(rank_plan(window_plan((2, 2, 2, 2), 3, "strict"), 0, 4))
    assert run_all(chosen) == ["0F0", "0F1"]
    chosen.deliver_gradient(0, 0)
    chosen.deliver_gradient(0, 1)
    assert run_all(chosen) == ["0B0", "0F2"]
    assert chosen.undecided

    chosen.extend()
    assert run_all(chosen) == ["0B1", "0F3"]
    chosen.deliver_gradient(0, 2)
    assert run_all(chosen) == ["0B2", "0F4"]
    chosen.deliver_gradient(0, 3)
    assert run_all(chosen) == ["0B3", "0F5"]
    chosen.close()
    for micro_batch in (4, 5):
        chosen.deliver_gradient(0, micro_batch)
    assert run_all(chosen) == ["0B4", "0B5"]
    assert chosen.finished


def run_all(chosen: Decision) -> list[str]:
    """What runs until the rank has to wait."""
    ran = []
    while (action := chosen.begin()) is not None:
        ran.append(str(action))
        chosen.ran(action)
    return ran


def test_a_strict_rank_waits_for_its_next_action_though_another_could_run() -> None:
    chosen = decision(rank_plans(made(layouts.line(2), orders.one_f_one_b(2, 3)))[0])

    assert run_all(chosen) == ["0F0", "0F1"]
    chosen.deliver_gradient(0, 1)
    assert run_all(chosen) == []
    chosen.deliver_gradient(0, 0)
    assert run_all(chosen) == ["0B0", "0F2", "0B1"]


def test_messages_that_come_in_another_order_are_run_as_they_come_within_the_cap() -> None:
    plan = hints(made(layouts.line(3), orders.one_f_one_b(3, 4)), 0)[1]
    assert plan.caps[1] == 2
    chosen = decision(plan)
    assert run_all(chosen) == []
    for micro_batch in (3, 1, 2):
        chosen.deliver_input(1, micro_batch)

    assert run_all(chosen) == ["1F1", "1F2"], "the plan's first that is there, and no more than its cap"
    chosen.deliver_gradient(1, 2)
    chosen.deliver_input(1, 0)
    assert run_all(chosen) == ["1B2", "1F0"], "1F0 stands earlier, but only 1B2 makes room for it"


def test_the_gradient_of_weights_fills_the_time_in_which_nothing_else_can_run() -> None:
    chosen = decision(hints(made(layouts.line(2), split_orders.zb_h1(2, 3)), 1)[1])
    chosen.deliver_input(1, 0)
    for expected in ("1F0", "1I0"):
        action = chosen.begin()
        assert str(action) == expected
        chosen.ran(action)
    chosen.deliver_input(1, 1)

    assert run_all(chosen) == ["1F1", "1I1", "1W0", "1W1"]


def test_hints_end_in_1000_random_pipelines_whatever_their_caps_jitter_and_messages() -> None:
    """Latencies are drawn for each message, so messages overtake each other as well."""
    for seed in range(1000):
        rng = random.Random(seed)
        ranks, micro_batches = rng.randint(2, 4), rng.choice([4, 8])
        layout, order = rng.choice(
            [
                (layouts.line(ranks), orders.gpipe(ranks, micro_batches)),
                (layouts.line(ranks), orders.one_f_one_b(ranks, micro_batches)),
                (layouts.line(ranks), split_orders.zb_h1(ranks, micro_batches)),
                (layouts.loop(ranks, 2), orders.looped_breadth_first(ranks, 2, micro_batches)),
                (layouts.vee(ranks), split_orders.v_half(ranks, micro_batches)),
            ]
        )
        caps = tuple(rng.randint(1, micro_batches + 4) for _ in range(layout.stages))
        iterations = rng.randint(1, 3)
        plans = [_hint(layout, order, rank, caps, micro_batches) for rank in range(ranks)]
        try:
            _, computed = run(plans, jitter(seed), latencies(rng), iterations)
        except StuckError as stuck:
            pytest.fail(f"seed {seed}, caps {caps}: {stuck}")
        for plan, trace in zip(plans, computed, strict=True):
            expected = (action for each in range(iterations) for action in plan.iteration(each))
            assert sorted(trace) == sorted(expected)
            _within_caps(plan, trace)
            _one_iteration_after_the_other(plan, trace)


def latencies(rng: random.Random) -> Callable[[Action], float]:
    """Of each message its own."""
    return lambda action: rng.choice([0.0, 0.5, 5.0])


def _hint(layout: Layout, order: Order, rank: int, caps: Sequence[int], micro_batches: int) -> RankPlan:
    actions = tuple(Action(each.stage, each.op.value, each.micro_batch) for each in computations(order)[rank])
    return RankPlan(
        rank, layout.chains[0], actions, tuple(caps), micro_batches, "hint", "flush", is_window=False
    )


def _one_iteration_after_the_other(plan: RankPlan, trace: Sequence[Action]) -> None:
    """On each stage, forwards, gradients of the input, and ends of backwards, each by themselves."""
    for stage in plan.stages:
        for part in ("F", "BI", "BW"):
            iterations = [
                micro_batch // plan.micro_batches
                for at, op, micro_batch in trace
                if at == stage and op in part
            ]
            assert iterations == sorted(iterations)


def _within_caps(plan: RankPlan, trace: Sequence[Action]) -> None:
    held = dict.fromkeys(plan.stages, 0)
    for stage, op, _ in trace:
        held[stage] += {"F": 1, "B": -1, "W": -1}.get(op, 0)
        assert held[stage] <= plan.caps[stage]


@pytest.mark.parametrize(
    ("latency", "split", "least"), [(0.0, False, 1.10), (0.0, True, 1.2), (1.0, False, 1.4), (1.0, True, 1.4)]
)
def test_readiness_first_beats_the_fixed_order_under_jitter_if_its_caps_are_larger(
    latency: float, split: bool, least: float
) -> None:
    """8 ranks, 32 micro-batches, σ 0.5; the order kept is that of 1F1B with whole backwards."""
    ranks, micro_batches = 8, 32
    plan = made(layouts.line(ranks), orders.one_f_one_b(ranks, micro_batches))
    hinted = plan if not split else made(layouts.line(ranks), split_orders.zb_h1(ranks, micro_batches))
    fixed, free = rank_plans(plan), hints(hinted, 2 * ranks)
    ratios = []
    for seed in range(8):
        kept_s, _ = run(fixed, jitter(seed), lambda action: latency)
        ratios.append(kept_s / run(free, jitter(seed), lambda action: latency)[0])

    assert statistics.mean(ratios) > least
