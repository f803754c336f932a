"""The timeline: exact where there is a closed form, near what was measured, and fast."""

from __future__ import annotations

import csv
import time

import pytest

from scheduler.errors import InvalidValueError
from scheduler.pipeline.schedules import (
    Action,
    ActionKind,
    action_table,
    gpipe_window,
    slack_window,
    strict_window,
)
from scheduler.pipeline.timeline import Chain, SendMode, simulate, simulate_table

FORWARD_S = 0.038
"""CrossPipe's model M70, printed."""
BACKWARD_S = 0.151 * 16 / 23 - FORWARD_S
"""Its own row without delay: 0.151 s a micro-batch × 16 = (16 + 8 − 1)(F + B)."""


def chain_of(forward_s: float, backward_s: float, stages: int, cuts: dict[int, tuple[float, float]]) -> Chain:
    """Equal stages; `cuts` maps a boundary to its (latency, transfer)."""
    delays = [cuts.get(boundary, (0.0, 0.0)) for boundary in range(stages - 1)]
    return Chain(
        (forward_s,) * stages,
        (backward_s,) * stages,
        tuple(latency for latency, _ in delays),
        tuple(transfer for _, transfer in delays),
    )


def crosspipe(data_dir, case: int):
    """(row, chain, window, micro-batches) for each published row of a case."""
    with (data_dir / "oracles" / "crosspipe_m70.csv").open(encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(line for line in lines if not line.startswith("#")))
    for row in rows:
        if int(row["case"]) == case:
            cuts = {"2": (3,), "4": (1, 3, 5)}[row["dcs"]]
            delay = (float(row["t_lat"]) * FORWARD_S, float(row["t_bw"]) * FORWARD_S)
            # Case 2 recomputes: every backward holds a forward more.
            backward_s = BACKWARD_S + (FORWARD_S if case == 2 else 0.0)
            chain = chain_of(FORWARD_S, backward_s, 8, dict.fromkeys(cuts, delay))
            micro_batches = {1: 16, 2: 32}[case]
            yield row, chain, strict_window(8, micro_batches), micro_batches


@pytest.mark.shared_data
@pytest.mark.parametrize(("case", "within"), [(1, 0.04), (2, 0.025)])
def test_blocking_sends_come_near_what_was_measured(data_dir, case, within):
    rows = list(crosspipe(data_dir, case))
    assert len(rows) == 10
    for row, chain, window, micro_batches in rows:
        made = simulate(chain, window, micro_batches, SendMode.BLOCKING).makespan_s / micro_batches
        assert made == pytest.approx(float(row["1f1b"]), rel=within), row


@pytest.mark.shared_data
@pytest.mark.parametrize("case", [1, 2])
def test_non_blocking_sends_are_never_slower_than_what_was_measured_where_there_is_delay(data_dir, case):
    for row, chain, window, micro_batches in crosspipe(data_dir, case):
        if float(row["t_lat"]) or float(row["t_bw"]):
            made = simulate(chain, window, micro_batches).makespan_s / micro_batches
            assert made <= float(row["1f1b"]), row


@pytest.mark.parametrize("send", list(SendMode))
@pytest.mark.parametrize(("stages", "micro_batches"), [(1, 1), (1, 9), (4, 2), (4, 4), (8, 16), (13, 50)])
def test_without_communication_1f1b_and_gpipe_take_exactly_m_plus_k_minus_1_turns(
    stages, micro_batches, send
):
    chain = chain_of(0.25, 0.5, stages, {})  # binary fractions: no rounding anywhere
    exact = (micro_batches + stages - 1) * 0.75
    assert simulate(chain, strict_window(stages, micro_batches), micro_batches, send).makespan_s == exact
    assert simulate(chain, gpipe_window(stages, micro_batches), micro_batches, send).makespan_s == exact


@pytest.mark.parametrize("cut", [0, 3, 6])
def test_one_cut_costs_strict_1f1b_its_delay_on_almost_every_micro_batch(cut):
    plain, with_cut = chain_of(1.0, 2.0, 8, {}), chain_of(1.0, 2.0, 8, {cut: (0.25, 0.0)})
    window, many = strict_window(8, 64), 64
    lost = simulate(with_cut, window, many).makespan_s - simulate(plain, window, many).makespan_s
    # A round trip of 2δ stands before two micro-batches of the window: δ each, but for those at the two ends.
    assert 64 * 0.25 * 0.8 <= lost <= 64 * 0.25


def test_the_slack_window_hides_a_delay_but_for_the_way_there_and_back():
    chain = chain_of(1.0, 2.0, 8, {3: (4.0, 1.0)})
    window = slack_window(chain.delay_s, chain.pace_s, 64)
    assert simulate(chain, window, 64).makespan_s == pytest.approx((64 + 7) * 3.0 + 2 * 5.0)


def test_a_link_that_is_too_narrow_sets_the_pace():
    chain = chain_of(1.0, 2.0, 4, {1: (0.0, 5.0)})
    window = slack_window(chain.delay_s, chain.pace_s, 200)
    made = simulate(chain, window, 400).makespan_s - simulate(chain, window, 200).makespan_s
    assert made == pytest.approx(200 * 5.0)


def test_messages_queue_for_a_link_in_the_order_they_were_sent():
    # Two forwards of 1 s each over a link that takes 3 s a message: ready at 1 and 2, sent at 1 and 4.
    chain = Chain((1.0, 1.0), (1.0, 1.0), (0.5,), (3.0,))
    # Stage 1: F0 at 4.5, B0 to 6.5, F1 at 7.5 (arrival 7.5), B1 to 9.5; back over the link: +3.5, then B1.
    assert simulate(chain, (2, 1), 2).makespan_s == 9.5 + 3.5 + 1.0


def test_the_two_directions_of_a_link_do_not_disturb_each_other():
    chain = chain_of(1.0, 1.0, 2, {0: (0.0, 2.0)})
    # With the window open, each direction carries one message in 2 s, which is also the pace.
    made = simulate(chain, (6, 1), 40).makespan_s
    assert made == pytest.approx(40 * 2.0 + 2.0 + 2 * 2.0)


def test_a_blocking_sender_stands_still_until_its_message_has_arrived():
    chain = Chain((1.0, 1.0), (1.0, 1.0), (0.5,), (3.0,))
    # F0 to 1, arrived 4.5; F1 4.5–5.5, arrived 9. Stage 1: F0 4.5–5.5, B0 –6.5, blocked to 10; F1 –11, B1 –12, –15.5.
    assert simulate(chain, (2, 1), 2, SendMode.BLOCKING).makespan_s == 16.5
    assert simulate(chain, (2, 1), 2, SendMode.NON_BLOCKING).makespan_s == 14.0


@pytest.mark.parametrize("window", [(8, 7, 6, 5, 4, 3, 2, 1), (12, 11, 9, 5, 4, 4, 4, 1), (20,) * 8])
def test_no_stage_ever_holds_more_than_its_cap(window):
    chain = chain_of(1.0, 2.0, 8, {3: (4.0, 1.0)})
    counted = simulate_table(chain, action_table(window, 20))
    assert counted.peak_in_flight == window
    assert simulate(chain, window, 20).peak_in_flight == window
    assert simulate(chain, window, 20).busy_s == pytest.approx((60.0,) * 8)


def test_a_table_whose_stages_wait_for_each_other_is_named_not_looped_over():
    forward, backward = Action(ActionKind.FORWARD, 0), Action(ActionKind.BACKWARD, 0)
    with pytest.raises(InvalidValueError, match="stage 0: B0"):
        simulate_table(chain_of(1.0, 1.0, 2, {}), ((backward, forward), (forward, backward)))
    with pytest.raises(InvalidValueError, match="2 stages"):
        simulate_table(chain_of(1.0, 1.0, 2, {}), ((forward, backward),))


@pytest.mark.parametrize(
    ("parts", "what"),
    [
        (((), (), (), ()), "a forward and backward"),
        (((1.0,), (1.0, 1.0), (), ()), "a forward and backward"),
        (((1.0, 1.0), (1.0, 1.0), (), (0.0,)), "1 boundaries"),
        (((float("nan"),), (1.0,), (), ()), "finite"),
        (((1.0, 1.0), (1.0, 1.0), (float("inf"),), (0.0,)), "finite"),
        (((-1.0,), (1.0,), (), ()), "0 or more"),
    ],
)
def test_a_chain_that_is_no_pipeline_is_refused(parts, what):
    with pytest.raises(InvalidValueError, match=what):
        Chain(*parts)


def test_a_large_timeline_takes_half_a_millisecond_at_most():
    cuts = {15: (20.0, 1.0), 31: (5.0, 2.0), 47: (1.0, 0.5)}
    chain, window = chain_of(1.0, 2.0, 64, cuts), strict_window(64, 256)
    unmemoised = simulate.__wrapped__
    unmemoised(chain, window, 256)  # compiles, or loads
    taken_s = []
    for _ in range(100):
        start = time.perf_counter()
        unmemoised(chain, window, 256)
        taken_s.append(time.perf_counter() - start)
    # The best of many: what it costs when nothing else runs on the machine.
    assert min(taken_s) <= 0.5e-3
