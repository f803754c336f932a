"""The learning rate of a step."""

from __future__ import annotations

from itertools import pairwise

import pytest

from agents.protocol import WorkerRateSchedule
from agents.worker.learning_rate import rate_factor


def factors(schedule: WorkerRateSchedule, steps: int) -> list[float]:
    return [rate_factor(schedule, step, steps) for step in range(1, steps + 1)]


def test_without_a_schedule_it_stays() -> None:
    assert factors(WorkerRateSchedule(), 3) == [1.0, 1.0, 1.0]


def test_it_warms_up_evenly_to_all_of_it() -> None:
    assert factors(WorkerRateSchedule(warmup_steps=4), 6) == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]


@pytest.mark.parametrize(("decay", "middle"), [("linear", 0.1 + 0.9 * 0.5), ("cosine", 0.1 + 0.9 * 0.5)])
def test_it_falls_to_its_final_part_at_the_last_step(decay: str, middle: float) -> None:
    schedule = WorkerRateSchedule(warmup_steps=2, decay=decay, final=0.1)
    found = factors(schedule, 10)
    assert found[1] == 1.0
    assert found[5] == pytest.approx(middle)
    assert found[-1] == pytest.approx(0.1)
    assert found[1:] == sorted(found[1:], reverse=True)


def test_a_cosine_falls_slowly_at_first_and_at_last() -> None:
    found = factors(WorkerRateSchedule(decay="cosine"), 9)
    falls = [one - other for one, other in pairwise(found)]
    assert falls[0] < falls[4] > falls[-1]


def test_a_run_that_only_warms_up_has_no_decay_to_divide_by() -> None:
    assert factors(WorkerRateSchedule(warmup_steps=3, decay="linear"), 3)[-1] == 1.0
