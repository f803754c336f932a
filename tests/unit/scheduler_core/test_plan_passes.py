"""Plans: what they hold, which messages pass, and what is refused and why."""

from __future__ import annotations

import pytest

from scheduler.errors import InvalidValueError
from scheduler.pipeline.plan.check import CyclicPlanError, check
from scheduler.pipeline.plan.ir import (
    Binding,
    Edge,
    Link,
    LowRank,
    Op,
    Plan,
    StageAction,
    StageCost,
    WeightRule,
    Worker,
)
from scheduler.pipeline.plan.layouts import both_ways, line, loop, vee, wave
from scheduler.pipeline.plan.memory import OutOfMemoryError, peak_bytes
from scheduler.pipeline.plan.orders import gpipe, interleaved, one_f_one_b
from scheduler.pipeline.plan.passes import place, plan_of
from scheduler.pipeline.plan.split_orders import zb_h1, zb_v
from scheduler.pipeline.plan.timing import timeline
from tests.plans import UNIT, chain_pipeline, pipeline_of, together

F, B, I, W = Op.FORWARD, Op.BACKWARD, Op.INPUT_GRADIENT, Op.WEIGHT_GRADIENT  # noqa: E741


def written(actions) -> str:
    return " ".join(map(str, actions))


def read(text: str) -> tuple[StageAction, ...]:
    return tuple(StageAction(int(each[0]), Op(each[1:-1]), int(each[-1])) for each in text.split())


def two_ranks(first: str, second: str, **how) -> Plan:
    return plan_of(pipeline_of(line(2), UNIT, ["a", "a"], []), (read(first), read(second)), **how)


def test_layouts_put_stages_where_the_published_schedules_have_them():
    assert loop(3, 2).chains == ((0, 1, 2, 0, 1, 2),)
    assert vee(3).chains == ((0, 1, 2, 2, 1, 0),)
    assert wave(2, 2).chains == ((0, 1, 1, 0, 0, 1, 1, 0),)
    assert both_ways(2).chains == ((0, 1), (1, 0))
    with pytest.raises(InvalidValueError, match="at least one rank"):
        line(0)


def test_every_result_that_leaves_its_rank_is_sent_at_once_and_received_before_its_use():
    plan = two_ranks("0F0 0F1 0B0 0B1", "1F0 1B0 1F1 1B1")
    assert written(plan.actions[0]) == "0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0B0 0RECV_B1 0B1"
    assert written(plan.actions[1]) == "1RECV_F0 1F0 1B0 1SEND_B0 1RECV_F1 1F1 1B1 1SEND_B1"


def test_receives_stand_in_the_order_in_which_they_are_sent_whatever_the_order_of_use():
    plan = two_ranks("0F0 0F1 0B1 0B0", "1F1 1B1 1F0 1B0")
    assert written(plan.actions[1]) == "1RECV_F0 1RECV_F1 1F1 1B1 1SEND_B1 1F0 1B0 1SEND_B0"


def test_what_stays_on_its_rank_is_no_message():
    plan = together(vee(2), zb_v(2, 4))
    assert not any(action.stage in (1, 2) and action.op is Op.SEND_FORWARD for action in plan.actions[1][:2])
    sent = [action for action in plan.actions[1] if action.op in (Op.SEND_FORWARD, Op.SEND_BACKWARD)]
    assert {(action.stage, action.op) for action in sent} == {(2, Op.SEND_FORWARD), (1, Op.SEND_BACKWARD)}


def test_the_caps_of_a_plan_are_what_its_order_has_in_flight():
    assert together(line(4), one_f_one_b(4, 8)).caps == (4, 3, 2, 1)
    assert together(line(4), gpipe(4, 8)).caps == (8, 8, 8, 8)
    # In flight until its weights' gradient is there: every stage of ZB-H1 holds as much as 1F1B's first.
    assert together(line(4), zb_h1(4, 8)).caps == (4, 4, 4, 4)


def test_a_plan_whose_ranks_wait_for_each_other_is_refused_with_the_cycle():
    with pytest.raises(
        CyclicPlanError, match="rank 0 at 0B0 for 1SEND_B0, rank 1 at 1F1 for 0SEND_F1"
    ) as caught:
        two_ranks("0F0 0B0 0F1 0B1", "1F0 1F1 1B0 1B1")
    assert [rank for rank, _, _ in caught.value.cycle] == [0, 1]


def test_a_rank_that_waits_for_itself_is_a_cycle_of_one():
    with pytest.raises(CyclicPlanError, match="rank 0 at 0B0 for 0F0"):
        two_ranks("0B0 0F0", "1F0 1B0")


@pytest.mark.parametrize(
    ("first", "second", "what"),
    [
        ("0F0 0F1 0B0", "1F0 1B0 1F1 1B1", "stage 0: B of micro-batches"),
        ("0F0 0B0 0F1 0B1", "1F0 1B0", "stage 1: F of micro-batches"),
        ("0F0 0I0", "1F0 1B0", "stage 0: W of micro-batches"),
        ("0F0 0B0 0W0", "1F0 1B0", "either B or I and W"),
        ("0F0 0F0 0B0", "1F0 1B0", "0F0 twice"),
        ("0F0 1B0", "1F0 0B0", "1B0 on rank 0"),
    ],
)
def test_an_order_that_is_not_complete_is_refused(first, second, what):
    with pytest.raises(InvalidValueError, match=what):
        two_ranks(first, second)


@pytest.mark.parametrize(
    ("second", "what"),
    [
        ("1F0 1B0 1SEND_B0 1RECV_F1 1F1 1B1 1SEND_B1", "no 1RECV_F0"),
        ("1RECV_F0 1F0 1B0 1RECV_F1 1F1 1B1 1SEND_B1", "no 1SEND_B0"),
        ("1RECV_F0 1F0 1SEND_F0 1B0 1SEND_B0 1RECV_F1 1F1 1B1 1SEND_B1", "1SEND_F0"),
        ("1RECV_F1 1RECV_F0 1F0 1B0 1SEND_B0 1F1 1B1 1SEND_B1", "message 0 from rank 0 is for 1RECV_F0"),
    ],
)
def test_messages_that_do_not_meet_are_refused(second, what):
    plan = two_ranks("0F0 0F1 0B0 0B1", "1F0 1B0 1F1 1B1")
    broken = Plan(plan.pipeline, (plan.actions[0], read(second)), plan.caps, plan.weight_rule, plan.binding)
    with pytest.raises(InvalidValueError, match=what):
        check(broken)


def test_a_plan_that_a_worker_cannot_hold_is_refused_with_the_stage_and_the_bytes():
    cost = StageCost(1, 1, 1, weight_bytes=100, inflight_bytes=10, pending_bytes=4)
    assert peak_bytes(together(line(3), one_f_one_b(3, 6), cost)) == (130, 120, 110)
    with pytest.raises(OutOfMemoryError, match="stage 0 on rank 0 comes to 130 bytes") as caught:
        together(line(3), one_f_one_b(3, 6), cost, memory_bytes=129)
    assert (caught.value.stage, caught.value.needed_bytes, caught.value.memory_bytes) == (0, 130, 129)
    together(line(3), one_f_one_b(3, 6), cost, memory_bytes=130)


def test_a_split_backward_holds_its_pending_bytes_until_the_gradient_of_the_weights():
    # Stage 1 of ZB-H1 on two ranks: F0 I0 F1 I1 W0 …: one in flight, and one pending from I0 to W0.
    cost = StageCost(1, 1, 1, inflight_bytes=10, pending_bytes=4)
    assert peak_bytes(together(line(2), zb_h1(2, 4), cost)) == (20, 14)


@pytest.mark.parametrize(
    ("rule", "bytes_of_first"), [("flush", 130), ("current", 130), ("double-buffered", 137), ("stashed", 144)]
)
def test_a_weight_rule_holds_its_versions(rule, bytes_of_first):
    cost = StageCost(1, 1, 1, weight_bytes=100, version_bytes=7, inflight_bytes=10)
    pipeline = pipeline_of(line(3), cost, ["a"] * 3, [])
    assert peak_bytes(plan_of(pipeline, one_f_one_b(3, 6), WeightRule(rule)))[0] == bytes_of_first


def test_a_codec_divides_the_bytes_of_a_message():
    plain, coded = Edge(0, 1, (2, 64, 512), 2), Edge(0, 1, (2, 64, 512), 2, LowRank(64))
    assert plain.wire_bytes == 2 * 64 * 512 * 2
    assert plain.wire_bytes == 8 * coded.wire_bytes
    with pytest.raises(InvalidValueError, match=r"codec\.rank"):
        Edge(0, 1, (2, 64, 512), 2, LowRank(513))


def test_regions_without_a_link_are_no_place_for_a_pipeline():
    workers = [Worker("a"), Worker("b")]
    with pytest.raises(InvalidValueError, match="'b', 'a'"):
        place(line(2), [UNIT] * 2, workers, [Link("a", "b", 0.1, 1e9)])


def test_a_plan_that_only_hints_has_no_timeline_of_its_own():
    plan = plan_of(chain_pipeline([UNIT] * 2, {}), one_f_one_b(2, 2), binding=Binding.HINT)
    with pytest.raises(InvalidValueError, match="strict plan"):
        timeline(plan)


def test_orders_say_which_micro_batches_they_are_for():
    with pytest.raises(InvalidValueError, match="multiple of 4 ranks"):
        interleaved(4, 2, 6)
    with pytest.raises(InvalidValueError, match="at least 2 × 4"):
        zb_v(4, 7)
