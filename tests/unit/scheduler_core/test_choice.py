"""The window that a job runs with: what it asked for, whole, or the fastest that the memory holds."""

from __future__ import annotations

import csv
import random
from itertools import pairwise, product

import pytest

from scheduler.job import Schedule
from scheduler.pipeline.choice import budget_windows, choose_full_window, choose_window
from scheduler.pipeline.iteration import bottleneck_bound_s, long_run_s
from scheduler.pipeline.schedules import fits, slack_window, strict_window
from scheduler.pipeline.timeline import Chain, simulate
from tests.pipelines import equal_chain, pipelines, unlike_memory

SLACK, STRICT = Schedule.SLACK_1F1B, Schedule.ONE_F_ONE_B
FORWARD_S = 0.038
"""CrossPipe's model M70: printed, and what follows from its row without delay."""
BACKWARD_S = 0.151 * 16 / 23 - FORWARD_S


def crosspipe(regions: int, latency: float, transfer: float) -> Chain:
    """Its 8 stages over 2 or 4 regions, delays in units of a forward."""
    cuts = {2: (3,), 4: (1, 3, 5)}[regions]
    return equal_chain(
        FORWARD_S, BACKWARD_S, 8, dict.fromkeys(cuts, (latency * FORWARD_S, transfer * FORWARD_S))
    )


def windows_within(limits: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Every window that can run in these limits."""
    caps = product(*(range(1, limit + 1) for limit in limits))
    return [window for window in caps if all(b <= a for a, b in pairwise(window))]


def test_the_slack_window_is_taken_where_it_fits_and_nothing_is_faster():
    chain = equal_chain(1.0, 2.0, 4, {1: (4.0, 0.0)})
    chosen = choose_window(SLACK, chain, 64, (7, 6, 2, 1))
    assert (chosen.schedule, chosen.window) == (SLACK, (7, 6, 2, 1))
    assert chosen.timeline == simulate(chain, (7, 6, 2, 1), 64)
    without_delay = choose_window(SLACK, equal_chain(1.0, 2.0, 4, {}), 64, (9, 9, 9, 9))
    assert (without_delay.schedule, without_delay.window) == (SLACK, (4, 3, 2, 1))


@pytest.mark.parametrize(("schedule", "window"), [(Schedule.GPIPE, (9, 9, 9)), (STRICT, (3, 2, 1))])
@pytest.mark.parametrize("limits", [(99, 99, 99), (2, 2, 2)])
def test_gpipe_and_strict_1f1b_are_what_was_asked_for_whatever_would_be_faster(schedule, window, limits):
    chosen = choose_window(schedule, equal_chain(1.0, 1.0, 3, {0: (5.0, 0.0), 1: (5.0, 0.0)}), 9, limits)
    assert (chosen.schedule, chosen.window) == (schedule, window)


def test_without_the_memory_for_strict_1f1b_that_is_the_answer():
    chain = equal_chain(1.0, 2.0, 4, {1: (4.0, 0.0)})
    chosen = choose_window(SLACK, chain, 64, (9, 9, 1, 1))
    assert (chosen.schedule, chosen.window) == (STRICT, (4, 3, 2, 1))


def test_the_clipped_slack_window_is_never_chosen():
    chain = crosspipe(4, 2.0, 0.25)
    limits = (8,) * 8
    clipped = tuple(map(min, slack_window(chain.delay_s, chain.pace_s, 32), limits))
    assert simulate(chain, clipped, 32).makespan_s / 32 == pytest.approx(0.509, abs=1e-3)
    chosen = choose_window(SLACK, chain, 32, limits)
    assert (chosen.schedule, chosen.window) == (STRICT, strict_window(8, 32))
    assert chosen.timeline.makespan_s / 32 == pytest.approx(0.224, abs=1e-3)


@pytest.mark.parametrize(
    ("micro_batches", "cap", "regions", "latency", "transfer", "seconds"),
    [
        (16, 8, 2, 0.25, 0.25, 0.1676),
        (16, 8, 2, 2, 2, 0.2350),
        (16, 8, 4, 2, 2, 0.3227),
        (32, 8, 2, 2, 0.25, 0.2082),
        (32, 16, 2, 2, 2, 0.1375),
        (32, 16, 4, 2, 2, 0.1705),
        (64, 16, 4, 2, 0.25, 0.1245),
        (128, 32, 4, 2, 2, 0.1179),
    ],
)
def test_what_a_micro_batch_takes_in_a_given_memory(micro_batches, cap, regions, latency, transfer, seconds):
    chain = crosspipe(regions, latency, transfer)
    chosen = choose_window(SLACK, chain, micro_batches, (cap,) * 8)
    assert chosen.timeline.makespan_s / micro_batches == pytest.approx(seconds, abs=1e-4)


@pytest.mark.shared_data
def test_no_window_beats_what_was_proven_to_be_the_optimum_of_all_orders(data_dir):
    with (data_dir / "oracles" / "optimal_orders.csv").open(encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(line for line in lines if not line.startswith("#")))
    compared = 0
    for row in rows:
        if row["freed_at"] == "W":  # with the end of the backward, as here
            stages, many, cap = int(row["stages"]), int(row["micro_batches"]), int(row["cap"])
            delay = (float(row["lat"]), float(row["bw"]))
            chain = equal_chain(
                76.0, 93.0 + 41.0, stages, {int(cut): delay for cut in row["cuts"].split("|")}
            )
            chosen = choose_window(SLACK, chain, many, (cap,) * stages)
            assert chosen.timeline.makespan_s >= float(row["optimum"])
            compared += 1
    assert compared > 10


def test_a_choice_fits_is_never_slower_than_strict_and_the_same_again():
    rng = random.Random(7)
    for chain, many in pipelines(300, seed=21):
        limits = unlike_memory(chain.stages, rng)
        chosen = choose_window(SLACK, chain, many, limits)
        assert fits(chosen.window, limits)
        strict_s = simulate(chain, strict_window(chain.stages, many), many).makespan_s
        assert chosen.timeline.makespan_s <= strict_s * (1 + 1e-9)
        assert chosen.timeline == simulate(chain, chosen.window, many)
        assert choose_window(SLACK, chain, many, list(limits)) == chosen


@pytest.mark.parametrize("rounds", [(1, 8), (1, 2)])
def test_gpipe_is_never_faster_than_the_choice_where_the_memory_holds_it(rounds: tuple[int, int]) -> None:
    """So the fastest schedule that fits needs no name of its own: it is what `slack-1f1b` comes to."""
    for chain, many in pipelines(300, seed=24, rounds=rounds):
        for micro_batches in (many, max(1, many // 3)):
            limits = tuple(max(micro_batches, chain.stages - stage) for stage in range(chain.stages))
            gpipe_s = choose_window(Schedule.GPIPE, chain, micro_batches, limits).timeline.makespan_s
            chosen_s = choose_window(SLACK, chain, micro_batches, limits).timeline.makespan_s
            assert chosen_s <= gpipe_s * (1 + 1e-9)


def test_budget_windows_have_the_least_lambda_of_all_windows_that_fit():
    rng = random.Random(8)
    for chain, _ in pipelines(60, seed=22, most_stages=4):
        limits = unlike_memory(chain.stages, rng)
        least = min(long_run_s(chain, window) for window in windows_within(limits))
        for window in budget_windows(chain, 10_000, limits)[:3]:
            assert fits(window, limits)
            assert long_run_s(chain, window) == pytest.approx(least, rel=2e-6)


def test_a_pipeline_that_stays_full_has_nearly_the_least_lambda_of_all_windows_that_fit():
    """The window that is fastest for one iteration is up to several times slower in the long run."""
    rng = random.Random(10)
    behind, alone_behind = [], []
    for chain, many in pipelines(100, seed=25, most_stages=4):
        limits = unlike_memory(chain.stages, rng)
        least = min(long_run_s(chain, window) for window in windows_within(limits))
        full = choose_full_window(SLACK, chain, many, limits)
        assert fits(full.window, limits)
        behind.append(full.timeline.makespan_s / (many * least) - 1)
        alone_behind.append(long_run_s(chain, choose_window(SLACK, chain, many, limits).window) / least - 1)
    assert min(behind) >= -1e-9
    assert sum(behind) / len(behind) < 0.001
    assert max(behind) < 0.02
    assert max(alone_behind) > 1


def test_the_time_of_a_full_pipeline_is_what_iterations_add():
    rng = random.Random(11)
    for chain, many in pipelines(50, seed=26, most_stages=8):
        full = choose_full_window(SLACK, chain, many, unlike_memory(chain.stages, rng))
        ends_s = [simulate(chain, full.window, many * rounds).makespan_s for rounds in (200, 400)]
        assert full.timeline.makespan_s == pytest.approx((ends_s[1] - ends_s[0]) / 200, rel=1e-3)


def test_the_choice_is_nearly_the_best_of_all_windows_that_fit():
    rng = random.Random(9)
    behind = []
    for chain, many in pipelines(100, seed=23, most_stages=4):
        limits = unlike_memory(chain.stages, rng)
        best = min(simulate(chain, window, many).makespan_s for window in windows_within(limits))
        behind.append(choose_window(SLACK, chain, many, limits).timeline.makespan_s / best - 1)
    assert min(behind) >= -1e-9
    assert sum(behind) / len(behind) < 0.005
    assert max(behind) < 0.1


def test_up_to_the_slowest_stage_forwards_run_ahead_while_it_waits_for_its_first_backward():
    chain = Chain((1.0,) * 4, (3.0, 3.0, 2.0, 2.0), (0.0, 8.0, 0.0), (0.0,) * 3)
    rule = simulate(chain, slack_window(chain.delay_s, chain.pace_s, 20), 20)
    chosen = choose_window(SLACK, chain, 20, (20,) * 4)
    assert chosen.schedule is SLACK
    # 30 s there and back for the first, and the others' backwards of 3 s: it cannot be faster.
    assert chosen.timeline.makespan_s == bottleneck_bound_s(chain, 20) == 87
    assert rule.makespan_s == 104


def test_one_small_stage_does_not_close_the_window_of_the_others():
    chain = equal_chain(1.0, 2.0, 6, {1: (6.0, 0.5), 3: (6.0, 0.5)})
    wide = choose_window(SLACK, chain, 60, (30,) * 6)
    tight = choose_window(SLACK, chain, 60, (30, 30, 30, 30, 2, 1))
    assert wide.timeline.makespan_s == tight.timeline.makespan_s


def test_a_window_for_one_stage_or_one_micro_batch_is_one():
    assert choose_window(SLACK, Chain((1.0,), (2.0,), (), ()), 9, (4,)).window == (1,)
    far = equal_chain(1.0, 2.0, 3, {0: (50.0, 1.0)})
    assert choose_window(SLACK, far, 1, (1, 1, 1)).window == (1, 1, 1)
