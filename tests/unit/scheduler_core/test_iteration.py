"""The closed forms: exact where they claim to be, and bounds where they claim to be bounds."""

from __future__ import annotations

import random

import pytest

from scheduler.errors import InvalidValueError
from scheduler.pipeline.iteration import bottleneck_bound_s, iteration_forms, long_run_s
from scheduler.pipeline.schedules import gpipe_window, slack_window, strict_window
from scheduler.pipeline.timeline import Chain, simulate
from tests.pipelines import equal_chain, pipelines, random_window


def windows(chain: Chain, micro_batches: int) -> list[tuple[int, ...]]:
    return [
        strict_window(chain.stages, micro_batches),
        slack_window(chain.delay_s, chain.pace_s, micro_batches),
    ]


def test_lambda_is_the_long_run_time_of_a_micro_batch():
    for chain, _ in pipelines(60, seed=11):
        for window in windows(chain, 10**6):
            settled, later = (simulate(chain, window, count).makespan_s for count in (1500, 4020))
            assert (later - settled) / 2520 == pytest.approx(long_run_s(chain, window), rel=3e-3)


def test_the_slack_window_is_sound_wherever_the_links_keep_up():
    sound = 0
    for chain, _ in pipelines(200, seed=12):
        if max(chain.transfer_s) <= chain.pace_s:
            sound += 1
            assert long_run_s(chain, slack_window(chain.delay_s, chain.pace_s, 10**6)) == pytest.approx(
                chain.pace_s
            )
    assert sound > 100


def test_one_cut_costs_strict_1f1b_its_delay_on_every_micro_batch():
    chain = Chain((1.0,) * 8, (2.0,) * 8, (0, 0, 0, 0.5, 0, 0, 0), (0, 0, 0, 0.25, 0, 0, 0))
    # λ of the span over the cut: (2 T + 2 δ) / 2.
    assert long_run_s(chain, strict_window(8, 64)) == pytest.approx(3.0 + 0.75)


def test_the_forms_are_exact_for_equal_stages_without_communication():
    chain = equal_chain(1.0, 2.0, 6, {})
    forms = iteration_forms(chain, strict_window(6, 40), 40)
    assert (forms.cycle_s, forms.safe_s) == pytest.approx(((40 + 5) * 3.0,) * 2)
    alone = iteration_forms(Chain((1.0,), (2.0,), (), ()), (1,), 5)
    assert (alone.cycle_s, alone.safe_s) == pytest.approx((15.0,) * 2)


def test_gpipe_takes_the_way_and_the_longest_forward_and_backward_for_every_other_micro_batch():
    chain = Chain((1.0, 2.0, 1.5), (3.0, 2.0, 2.5), (0.5, 0.0), (0.25, 4.0))
    # A forward crosses each 4 s (the link), a backward too.
    exact_s = 4.5 + 7.5 + 2 * 4.75 + 9 * (4.0 + 4.0)
    assert simulate(chain, gpipe_window(3, 10), 10).makespan_s == pytest.approx(exact_s)
    forms = iteration_forms(chain, gpipe_window(3, 10), 10)
    assert (forms.cycle_s, forms.safe_s) == pytest.approx((exact_s, exact_s))


def test_the_timeline_lies_between_the_forms_whatever_the_pipeline():
    """Also where stages or links take no time at all, and caps are equal, or larger than M."""
    rng = random.Random(14)

    def seconds(count: int) -> tuple[float, ...]:
        return tuple(rng.choice((0.0, rng.random(), 10 * rng.random(), 1.0)) for _ in range(count))

    for _ in range(3000):
        stages, many = rng.randint(1, 10), rng.randint(1, 30)
        chain = Chain(seconds(stages), seconds(stages), seconds(stages - 1), seconds(stages - 1))
        window = random_window(stages, many, rng)
        exact_s = simulate.__wrapped__(chain, window, many).makespan_s
        forms = iteration_forms(chain, window, many)
        assert forms.cycle_s <= exact_s * (1 + 1e-9)
        assert forms.safe_s >= exact_s * (1 - 1e-9)
        assert bottleneck_bound_s(chain, many) <= exact_s * (1 + 1e-9)


def test_the_bottleneck_bound_is_what_the_busiest_stage_or_link_needs():
    stage = Chain((1.0, 3.0, 1.0), (1.0, 5.0, 2.0), (0.5, 0.0), (0.0, 0.0))
    # To stage 1: 1 + 0.5, ten times 8, back: 0.5 + 1.
    assert bottleneck_bound_s(stage, 10) == pytest.approx(1.5 + 80 + 1.5)
    link = Chain((1.0, 1.0), (2.0, 2.0), (0.5,), (7.0,))
    assert bottleneck_bound_s(link, 10) == pytest.approx(6 + 2 * 7.5 + 9 * 7)
    assert bottleneck_bound_s(Chain((1.0,), (2.0,), (), ()), 5) == 15.0


def test_a_chosen_window_with_room_comes_within_the_bound():
    """The bound is worth something: it is reached where the window is right."""
    chain = Chain((1.0, 1.0), (2.5, 2.0), (0.0,), (0.0,))
    assert simulate(chain, (5, 1), 16).makespan_s == pytest.approx(bottleneck_bound_s(chain, 16))


def test_a_window_that_does_not_suit_the_chain_is_refused():
    chain = Chain((1.0,) * 2, (1.0,) * 2, (0.0,), (0.0,))
    with pytest.raises(InvalidValueError, match="2 stages"):
        iteration_forms(chain, (1,), 4)
    with pytest.raises(InvalidValueError, match="never grow"):
        long_run_s(chain, (1, 2))
