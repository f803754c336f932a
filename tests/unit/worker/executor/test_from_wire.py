"""A plan that cannot be executed is refused before anything starts, by the field or the action that is wrong."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from agents.protocol import WorkerOrder, WorkerPlan
from agents.worker.executor.from_wire import PlanError, rank_plan
from scheduler.pipeline.plan import layouts, orders, split_orders
from scheduler.pipeline.plan.generate import hanayo
from tests.plans import together
from tests.wire_plans import rank_plans, wire_plan

ONE_F_ONE_B = together(layouts.line(3), orders.one_f_one_b(3, 3))
ZB_V = together(layouts.vee(2), split_orders.zb_v(2, 4))


def with_actions(plan: WorkerPlan, change: dict[str, str | None], **changes: Any) -> WorkerPlan:
    """The plan in which the keys of `change` stand as its values; those of None are gone, and `` is added last."""
    assert plan.order is not None
    cells = [change.get(cell, cell) for cell in plan.order.actions]
    cells += [added for at, added in change.items() if at == "" and added]
    order = WorkerOrder(stage_ranks=plan.order.stage_ranks, actions=[cell for cell in cells if cell])
    return plan.model_copy(update={"order": order, **changes})


PUBLISHED = {
    "gpipe": (layouts.line(4), orders.gpipe(4, 8)),
    "slack": (layouts.line(4), orders.windowed((7, 6, 2, 1), 8)),
    "zb-h1": (layouts.line(4), split_orders.zb_h1(4, 8)),
    "interleaved": (layouts.loop(4, 2), orders.interleaved(4, 2, 8)),
    "looped-bfs": (layouts.loop(4, 2), orders.looped_breadth_first(4, 2, 8)),
    "zb-v": (layouts.vee(4), split_orders.zb_v(4, 8)),
    "dual-pipe-v": (layouts.vee(4), split_orders.dual_pipe_v(4, 8)),
    "v-half": (layouts.vee(4), split_orders.v_half(4, 8)),
    "hanayo": (layouts.wave(4, 2), hanayo(4, 2, 8)),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_every_published_order_of_one_chain_is_read_as_it_is(name: str) -> None:
    plan = together(*PUBLISHED[name])

    for rank, read in enumerate(rank_plans(plan)):
        assert list(map(str, read.actions)) == list(map(str, plan.actions[rank]))
        assert read.caps == plan.caps


def test_a_window_is_an_order_without_messages() -> None:
    plan = wire_plan(ONE_F_ONE_B, 0, order=None, window=[3, 2, 1])

    read = rank_plan(plan, 1, 3)

    assert " ".join(map(str, read.actions)) == "1F0 1F1 1B0 1F2 1B1 1B2"
    assert (read.stages, read.last_stage, read.is_window, read.for_torch) == ((1,), 2, True, True)


def test_an_order_is_read_with_its_messages_or_without() -> None:
    read = rank_plan(wire_plan(ZB_V, 0), 0, 2)
    bare = rank_plan(wire_plan(ZB_V, 0, messages=False, binding="hint"), 0, 2)

    assert read.stages == (0, 3)
    assert read.computations == bare.computations == bare.actions
    assert len(read.actions) > len(bare.actions)
    assert (read.for_torch, bare.for_torch) == (True, False)
    assert not rank_plan(wire_plan(ONE_F_ONE_B, 0, weight_rule="current"), 0, 3).for_torch


@pytest.mark.parametrize("rule", ["current", "predicted", "double-buffered", "stashed"])
def test_no_update_may_come_between_the_parts_of_a_backward(rule: str) -> None:
    with pytest.raises(PlanError, match=f"order.actions: 3W0 with weight_rule {rule}: only flush"):
        rank_plan(wire_plan(ZB_V, 0, weight_rule=rule), 0, 2)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"1F1": "0F1"}, "0F1 on rank 1, whose stages are [1]"),
        ({"1F1": "1F3"}, "1F3, but there are 3 micro-batches"),
        ({"1F1": "1F0"}, "1F0 twice"),
        ({"1F1": "1B1", "1B1": "1F1"}, "1B1 must come after 1F1"),
        ({"": "1W1"}, "1W1 must come after 1I1"),
        ({"1B1": "1I1"}, "stage 1 runs ['F', 'I'] of micro-batch 1"),
        ({"1RECV_F1": None}, "1RECV_F1 must come before 1F1"),
        ({"1SEND_F1": "1SEND_F2", "1SEND_F2": "1SEND_F1"}, "1SEND_F2 must come after 1F2"),
        ({"": "1RECV_F1"}, "1RECV_F1 twice"),
    ],
)
def test_an_order_that_is_not_right_is_refused(change: dict[str, str | None], told: str) -> None:
    with pytest.raises(PlanError) as caught:
        rank_plan(with_actions(wire_plan(ONE_F_ONE_B, 1), change), 1, 3)
    assert told in str(caught.value)
    assert str(caught.value).startswith("order.actions: ")


def test_a_message_that_goes_nowhere_is_refused() -> None:
    with pytest.raises(PlanError, match="a message of something that stays on its rank, or goes nowhere"):
        rank_plan(with_actions(wire_plan(ONE_F_ONE_B, 0), {"": "0SEND_B1"}), 0, 3)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"window": [3, 1, 1]}, r"window is \[3, 1, 1\], but the order has 2 micro-batches of stage 1"),
        ({"window": [3, 2]}, "window 2 entries, but the pipeline has 3 stages"),
        ({"layers_per_stage": [1, 2]}, "layers_per_stage has 2"),
        ({"messages": False}, "order.actions: no messages: a strict order"),
        ({"order": None, "window": [1, 2, 1]}, r"window is \[1, 2, 1\]"),
        ({"order": WorkerOrder(stage_ranks=[0, 1, 1], actions=["1F0"])}, r"order.stage_ranks is \[0, 1, 1\]"),
    ],
)
def test_fields_that_contradict_each_other_are_refused(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(PlanError, match=told):
        rank_plan(wire_plan(ONE_F_ONE_B, 1, **changes), 1, 3)


def test_the_last_stage_of_a_fixed_order_takes_its_forwards_in_order() -> None:
    backwards = orders.gpipe(1, 2)
    plan = together(layouts.line(1), (tuple(reversed(backwards[0][:2])) + backwards[0][2:],))

    with pytest.raises(PlanError, match=r"the last stage runs the forwards \[1, 0\]"):
        rank_plan(wire_plan(plan, 0), 0, 1)
    assert rank_plan(wire_plan(plan, 0, binding="hint"), 0, 1).binding == "hint"


def test_a_hint_may_have_any_cap() -> None:
    assert rank_plan(wire_plan(ONE_F_ONE_B, 1, binding="hint", window=[1, 1, 9]), 1, 3).caps == (1, 1, 9)


@pytest.mark.parametrize(
    "cell", ["1G0", "F0", "01F0", "1F", "1F01", "1f0", "1F0 ", "1UNSHARD", "(0F1;1B0)OVERLAP_F_B"]
)
def test_what_is_no_action_is_refused_on_the_wire(cell: str) -> None:
    with pytest.raises(ValidationError):
        WorkerOrder(stage_ranks=[0], actions=[cell])
