"""The closed forms: exact where they claim to be, and bounds where they claim to be bounds."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

import pytest

from scheduler.errors import InvalidValueError
from scheduler.pipeline.iteration import iteration_forms, long_run_s
from scheduler.pipeline.schedules import slack_window, strict_window
from scheduler.pipeline.timeline import Chain, simulate


def pipelines(count: int, seed: int) -> Iterator[tuple[Chain, int]]:
    """(chain, micro-batches): K 2–32, M K–8K, up to four cuts of 0.01–20 (latency) and 0.01–5 (transfer) forwards,
    stages ± 30 %, B/F 1.5–2.5: the family on which the forms were measured."""
    rng = random.Random(seed)
    for _ in range(count):
        stages = rng.randint(2, 32)
        forward = [rng.uniform(0.7, 1.3) for _ in range(stages)]
        backward = [each * rng.uniform(1.5, 2.5) for each in forward]
        latency, transfer = [0.0] * (stages - 1), [0.0] * (stages - 1)
        for cut in rng.sample(range(stages - 1), min(stages - 1, rng.randint(0, 4))):
            latency[cut] = math.exp(rng.uniform(math.log(0.01), math.log(20)))
            transfer[cut] = math.exp(rng.uniform(math.log(0.01), math.log(5)))
        micro_batches = rng.randint(stages, 8 * stages)
        yield Chain(tuple(forward), tuple(backward), tuple(latency), tuple(transfer)), micro_batches


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
    chain = Chain((1.0,) * 6, (2.0,) * 6, (0.0,) * 5, (0.0,) * 5)
    forms = iteration_forms(chain, strict_window(6, 40), 40)
    assert (forms.cycle_s, forms.safe_s, forms.upper_s) == pytest.approx(((40 + 5) * 3.0,) * 3)
    alone = iteration_forms(Chain((1.0,), (2.0,), (), ()), (1,), 5)
    assert (alone.cycle_s, alone.safe_s, alone.upper_s) == pytest.approx((15.0,) * 3)


def test_the_forms_stand_to_the_timeline_as_they_say():
    errors: dict[str, list[float]] = {"strict": [], "slack": []}
    for chain, micro_batches in pipelines(300, seed=13):
        for name, window in zip(errors, windows(chain, micro_batches), strict=True):
            exact = simulate(chain, window, micro_batches).makespan_s
            forms = iteration_forms(chain, window, micro_batches)
            errors[name].append(forms.cycle_s / exact - 1)
            assert forms.safe_s >= exact * (1 - 0.003)
            assert forms.upper_s >= exact * (1 - 1e-12)
            assert forms.cycle_s <= forms.safe_s
    for of_one in errors.values():
        assert sum(map(abs, of_one)) / len(of_one) < 0.02
        assert sorted(map(abs, of_one))[-4] < 0.15


def test_a_window_that_does_not_suit_the_chain_is_refused():
    chain = Chain((1.0,) * 2, (1.0,) * 2, (0.0,), (0.0,))
    with pytest.raises(InvalidValueError, match="2 stages"):
        iteration_forms(chain, (1,), 4)
    with pytest.raises(InvalidValueError, match="never grow"):
        long_run_s(chain, (1, 2))
