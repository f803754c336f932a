"""What windows and closed forms come to on many random pipelines: the tables of docs/mathematics.md.

    python -m pytest tests/unit/scheduler_core/test_pipeline_study.py -s -p no:randomly -p no:xdist

prints them.
"""

from __future__ import annotations

import random
from collections import defaultdict
from statistics import fmean

import pytest

from scheduler.job import Schedule
from scheduler.pipeline.choice import choose_window
from scheduler.pipeline.iteration import bottleneck_bound_s, iteration_forms
from scheduler.pipeline.schedules import fits, gpipe_window, slack_window, strict_window
from scheduler.pipeline.timeline import Chain, simulate
from tests.pipelines import FAMILY, memory_of_1f1b, pipelines, random_window, unlike_memory

SLACK = Schedule.SLACK_1F1B


def clipped(chain: Chain, micro_batches: int, limits: tuple[int, ...]) -> tuple[int, ...]:
    """What nobody should do: the slack window, every cap as large as fits."""
    return tuple(map(min, slack_window(chain.delay_s, chain.pace_s, micro_batches), limits))


@pytest.mark.parametrize(("rounds", "slack_within"), [((1, 8), 1.04), ((8, 16), 1.025)])
def test_how_near_the_windows_come_to_what_no_order_beats(rounds, slack_within):
    over: dict[str, list[float]] = defaultdict(list)
    peak: dict[str, list[float]] = defaultdict(list)
    to_strict: dict[str, list[float]] = defaultdict(list)
    for chain, many in pipelines(300, seed=1, rounds=rounds):
        stages = chain.stages
        tight = tuple(min(cap, many) for cap in memory_of_1f1b(stages))
        windows = {
            "GPipe": gpipe_window(stages, many),
            "strict 1F1B": strict_window(stages, many),
            "the slack rule": slack_window(chain.delay_s, chain.pace_s, many),
            "chosen, room for all": choose_window(SLACK, chain, many, (many,) * stages).window,
            "slack clipped, room for K": clipped(chain, many, tight),
            "chosen, room for K": choose_window(SLACK, chain, many, tight).window,
        }
        bound_s = bottleneck_bound_s(chain, many)
        strict_s = simulate(chain, windows["strict 1F1B"], many).makespan_s
        for name, window in windows.items():
            timeline = simulate(chain, window, many)
            assert timeline.makespan_s >= bound_s * (1 - 1e-9)
            assert timeline.peak_in_flight == window
            over[name].append(timeline.makespan_s / bound_s)
            to_strict[name].append(timeline.makespan_s / strict_s)
            peak[name].append(window[0] / many)
        assert fits(windows["chosen, room for K"], tight)
    print(f"\n300 pipelines: {FAMILY} {rounds[0]} and {rounds[1]}")
    print("| | over the bound: mean | worst | over strict: mean | worst | peak in flight / M: mean |")
    print("|---|---|---|---|---|---|")
    for name, found in over.items():
        print(
            f"| {name} | {fmean(found):.3f} | {max(found):.2f} "
            f"| {fmean(to_strict[name]):.3f} | {max(to_strict[name]):.2f} | {fmean(peak[name]):.2f} |"
        )
    assert fmean(over["chosen, room for all"]) <= 1.02
    assert fmean(over["the slack rule"]) <= slack_within
    assert 1.5 <= fmean(over["strict 1F1B"]) <= 2.2
    assert fmean(over["GPipe"]) <= 1.25
    assert set(peak["GPipe"]) == {1.0}
    assert fmean(peak["strict 1F1B"]) <= fmean(peak["the slack rule"]) <= 0.45
    assert fmean(to_strict["slack clipped, room for K"]) > 1.25
    for name in ("chosen, room for K", "chosen, room for all"):
        assert max(to_strict[name]) <= 1 + 1e-9
    assert fmean(to_strict["chosen, room for K"]) <= 0.84
    assert fmean(peak["chosen, room for K"]) <= fmean(peak["strict 1F1B"]) + 1e-9


def test_how_near_the_closed_forms_come_to_the_timeline():
    rng = random.Random(2)
    cycle: dict[str, list[float]] = defaultdict(list)
    safe: dict[str, list[float]] = defaultdict(list)
    for chain, many in pipelines(2000, seed=3):
        stages = chain.stages
        windows = {
            "strict 1F1B": strict_window(stages, many),
            "the slack rule": slack_window(chain.delay_s, chain.pace_s, many),
            "chosen, room for all": choose_window(SLACK, chain, many, (many,) * stages).window,
            "chosen, room for K": choose_window(SLACK, chain, many, memory_of_1f1b(stages)).window,
            "chosen, room for K − s … 2K": choose_window(
                SLACK, chain, many, unlike_memory(stages, rng)
            ).window,
            "any window": random_window(stages, many, rng),
            "GPipe": gpipe_window(stages, many),
        }
        bound_s = bottleneck_bound_s(chain, many)
        for name, window in windows.items():
            exact_s = simulate(chain, window, many).makespan_s
            forms = iteration_forms(chain, window, many)
            cycle[name].append(100 * (forms.cycle_s / exact_s - 1))
            safe[name].append(100 * (forms.safe_s / exact_s - 1))
            assert bound_s <= exact_s * (1 + 1e-9)
    print(f"\n2,000 pipelines: {FAMILY} 1 and 8")
    print("| | cycle form, %: mean | p99 | worst | safe form, %: mean | p99 | worst |")
    print("|---|---|---|---|---|---|---|")
    for name in cycle:
        assert max(cycle[name]) <= 1e-7  # never longer
        assert min(safe[name]) >= -1e-7  # never shorter
        below, above = sorted(-each for each in cycle[name]), sorted(safe[name])
        print(
            f"| {name} | {fmean(below):z.2f} | {below[-20]:z.1f} | {below[-1]:z.1f} "
            f"| {fmean(above):z.2f} | {above[-20]:z.1f} | {above[-1]:z.1f} |"
        )
        assert fmean(below) <= 0.3
        assert below[-20] <= 4
        assert below[-1] <= 20
        assert fmean(above) <= 0.5
        assert above[-20] <= 8
        assert above[-1] <= 20
    assert max(map(abs, (*cycle["GPipe"], *safe["GPipe"]))) <= 1e-7  # exact
