"""Windows and tables of actions: which micro-batch a stage takes next, and how many it may hold."""

from __future__ import annotations

import pytest

from scheduler.errors import InvalidValueError
from scheduler.pipeline.schedules import (
    Action,
    ActionKind,
    action_table,
    gpipe_window,
    require_window,
    slack_window,
    strict_window,
)

F, B = ActionKind.FORWARD, ActionKind.BACKWARD


def written(actions: tuple[Action, ...]) -> str:
    return " ".join(f"{kind}{micro_batch}" for kind, micro_batch in actions)


def test_strict_1f1b_runs_one_forward_and_one_backward_in_turn():
    first, second, last = action_table(strict_window(3, 4), 4)
    assert written(first) == "F0 F1 F2 B0 F3 B1 B2 B3"
    assert written(second) == "F0 F1 B0 F2 B1 F3 B2 B3"
    assert written(last) == "F0 B0 F1 B1 F2 B2 F3 B3"


def test_gpipe_runs_all_forwards_first():
    for actions in action_table(gpipe_window(3, 3), 3):
        assert written(actions) == "F0 F1 F2 B0 B1 B2"


def test_without_delay_the_slack_window_is_the_strict_one():
    assert slack_window([0.0] * 7, 3.0, 64) == strict_window(8, 64) == (8, 7, 6, 5, 4, 3, 2, 1)


def test_a_delay_opens_the_window_before_it_by_what_a_round_trip_takes():
    # 2 × 4 s of round trip at a pace of 3 s: three more in flight on every stage before the cut.
    assert slack_window([0.0, 4.0, 0.0], 3.0, 64) == (7, 6, 2, 1)
    assert slack_window([0.0, 4.0, 0.0], 3.0, 5) == (5, 5, 2, 1)


@pytest.mark.parametrize(
    ("window", "micro_batches", "part"),
    [
        ((1, 2), 8, "never grow"),
        ((2, 0), 8, "at least 1"),
        ((2,), 8, "each of 2 stages"),
        ((2, 1), 0, "micro_batches"),
    ],
)
def test_a_window_that_could_not_run_is_refused(window, micro_batches, part):
    with pytest.raises(InvalidValueError, match=part):
        require_window(window, 2, micro_batches)


def test_caps_above_the_number_of_micro_batches_are_only_generous():
    require_window((9, 20), 2, 8)
    assert action_table((9, 20), 8) == action_table(gpipe_window(2, 8), 8)
