"""PipeDream's delays are those of its theory, and advice follows the terms of the theory's bound."""

from __future__ import annotations

from itertools import pairwise

import pytest

from scheduler.errors import InvalidValueError
from scheduler.pipeline.plan import layouts, staleness
from scheduler.pipeline.plan.delays import block_delays, in_slots, longest_delay, pipedream
from scheduler.pipeline.plan.ir import Op, StageAction
from scheduler.pipeline.plan.orders import gpipe, one_f_one_b
from scheduler.pipeline.plan.staleness import (
    Bound,
    Budget,
    Training,
    advise,
    paci,
    periodic_averaging,
    synchronous,
    tightest,
)
from tests.plans import together

PUBLISHED = {2: 3, 3: 7, 4: 14, 5: 22, 6: 33, 8: 60, 10: 95, 12: 138, 16: 248, 24: 564, 32: 1008}


@pytest.mark.parametrize("stages", PUBLISHED)
def test_pipedream_is_as_late_as_its_theory_says(stages: int) -> None:
    delays = block_delays(pipedream(stages, 20 * stages))

    assert delays.most == longest_delay(stages) == PUBLISHED[stages]
    assert delays.mean == pytest.approx((stages**2 - 1) / 2, abs=1e-9)


@pytest.mark.parametrize("stages", [2, 5, 8])
def test_strict_1f1b_is_as_late_as_pipedream_if_every_backward_updates(stages: int) -> None:
    assert block_delays(one_f_one_b(stages, 20 * stages)) == block_delays(pipedream(stages, 20 * stages))


def test_pipedreams_order_is_a_plan_without_bubbles_in_the_middle() -> None:
    order = pipedream(4, 12)

    assert together(layouts.line(4), order).caps[0] == 4
    for actions in order:
        middle = [action.op for action in actions[8:-8]]
        assert all(one is not other for one, other in pairwise(middle))


def test_slots_start_an_action_one_slot_after_what_it_needs() -> None:
    F, B = Op.FORWARD, Op.BACKWARD
    assert list(in_slots(gpipe(2, 2))) == [
        StageAction(0, F, 0),
        StageAction(0, F, 1), StageAction(1, F, 0),
        StageAction(1, F, 1),
        StageAction(1, B, 0),
        StageAction(0, B, 0), StageAction(1, B, 1),
        StageAction(0, B, 1),
    ]  # fmt: skip


def test_an_order_in_which_ranks_wait_forever_has_no_delays() -> None:
    F, B = Op.FORWARD, Op.BACKWARD
    waiting = ((StageAction(0, B, 0), StageAction(0, F, 0)), (StageAction(1, F, 0), StageAction(1, B, 0)))

    with pytest.raises(InvalidValueError, match="0B0, 1F0"):
        block_delays(waiting)


@pytest.mark.parametrize(("stages", "micro_batches"), [(0, 4), (4, 0)])
def test_pipedream_needs_stages_and_micro_batches(stages: int, micro_batches: int) -> None:
    with pytest.raises(InvalidValueError, match="1 or more"):
        pipedream(stages, micro_batches)


def test_the_best_step_size_is_the_best() -> None:
    def at(step: float) -> float:
        return 0.3 / step + 5 * step + 70 * step**2

    best = tightest(0.3, 5, 70)

    assert best.total == pytest.approx(at(best.step_size))
    assert best.total < min(at(0.98 * best.step_size), at(1.02 * best.step_size))


def test_staleness_grows_with_the_fourth_power_of_the_stages_at_one_step_size() -> None:
    def staleness_per_squared_step(bound: Bound) -> float:
        return bound.staleness / bound.step_size**2

    few, many = (
        staleness_per_squared_step(staleness.pipedream(Budget(stages, 10_000, 1))) for stages in (16, 32)
    )

    assert many / few == pytest.approx(16, rel=0.04)


def test_averaging_has_the_papers_rate_where_replicas_replace_stages() -> None:
    """O(√(S/K) + S³H²/K) in K = RST block updates: from S to 4S at the same K the first term doubles."""

    def first_terms(stages: int) -> float:
        bound = periodic_averaging(Budget(stages, 10**9 // stages, 1, stages, local_steps=1))
        return bound.distance + bound.noise

    assert first_terms(16) / first_terms(4) == pytest.approx(2, rel=0.01)


def test_paci_is_advised_where_the_bubble_costs_more_than_the_delay() -> None:
    short = advise(Budget(stages=8, micro_batches=100_000, per_update=8))

    assert short.training is Training.PACI
    assert synchronous(Budget(8, 100_000, 8)).total > paci(Budget(8, 100_000, 8)).total
    assert any("47% of the time in the bubble" in reason for reason in short.reasons)


def test_synchronous_training_is_advised_where_little_time_is_left_for_so_much_delay() -> None:
    advice = advise(Budget(stages=32, micro_batches=200, per_update=4))

    assert advice.training is Training.SYNCHRONOUS
    assert any("weights up to 252 block updates late" in reason for reason in advice.reasons)


def test_periodic_averaging_is_advised_among_replicas_that_meet_often_enough() -> None:
    often = advise(Budget(16, 1_000_000, 16, replicas=16, local_steps=50))
    rarely = advise(Budget(16, 1000, 16, replicas=16, local_steps=500))
    alone = advise(Budget(16, 1_000_000, 16))

    assert often.training is Training.PERIODIC_AVERAGING
    assert rarely.training is Training.PACI
    assert Training.PERIODIC_AVERAGING not in alone.bounds


@pytest.mark.parametrize(("field", "value"), [("stages", 0), ("per_update", 0), ("micro_batches", 3)])
def test_a_budget_without_an_update_is_refused(field: str, value: int) -> None:
    with pytest.raises(InvalidValueError, match=f"budget.{field}"):
        Budget(**{"stages": 4, "micro_batches": 100, "per_update": 4, field: value})
