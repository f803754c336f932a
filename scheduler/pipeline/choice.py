"""Which in-flight window a job runs with: the fastest that its schedule allows and the memory holds.

Strict 1F1B and GPipe are what they are. A job that asked for slack gets the slack window where it fits, unless a
*budget window* is faster: one of least λ (`iteration.py`) among all that fit. That no loop over a span of stages is
slower than λ is a system of difference constraints, c_s − c_t + 1 ≥ span / λ. So the largest window that keeps to λ
within given limits comes by substitution, and the least λ that has one by bisection: an optimum, not a heuristic.
Clipping the slack window instead leaves equal caps on neighbours wherever it is too large. They run in lock-step, up
to three times slower than strict.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from scheduler.job import Schedule
from scheduler.pipeline.iteration import bottleneck_bound_s, forms, long_run_s
from scheduler.pipeline.kernel import Counts, Floats, compiled
from scheduler.pipeline.schedules import Window, fits, gpipe_window, slack_window, strict_window
from scheduler.pipeline.timeline import Chain, Timeline, simulate

WORTH_A_SEARCH = 0.002
"""Other windows than slack are tried where it is further than this above what no order beats."""
ROUNDING = 1e-9
RUN_ON = 16
"""Iterations for which a window is chosen where they run one into the other: filling and draining hardly count."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A window, its timeline, and its schedule: slack 1F1B also where the window was chosen, strict if it is that."""

    schedule: Schedule
    window: Window
    timeline: Timeline


def choose_window(schedule: Schedule, chain: Chain, micro_batches: int, limits: Sequence[int]) -> Choice:
    """The window that a job of this schedule runs with; never slower than strict 1F1B if it asked for slack or auto.

    `limits[s]` is how many micro-batches stage s can hold. Whether the answer fits is for the caller to see
    (`fits`): where not even strict 1F1B does, that is the answer.
    """
    if schedule.looks_for_window:
        return _slack_or_better(chain, micro_batches, limits)
    make = gpipe_window if schedule is Schedule.GPIPE else strict_window
    window = make(chain.stages, micro_batches)
    return Choice(schedule, window, simulate(chain, window, micro_batches))


def choose_full_window(schedule: Schedule, chain: Chain, micro_batches: int, limits: Sequence[int]) -> Choice:
    """`choose_window` for a pipeline that stays full from one iteration to the next: the window that would be chosen
    for an iteration of many times the micro-batches, and what one iteration adds in it.

    What is fastest for a single iteration may hold that back for ever: loops that do not close within it close then.
    """
    many = RUN_ON * max(micro_batches, chain.stages)
    choice = choose_window(schedule, chain, many, limits)
    return replace(choice, timeline=full_timeline(chain, choice.window, micro_batches))


def full_timeline(chain: Chain, window: Window, micro_batches: int) -> Timeline:
    """What one iteration of a pipeline that stays full adds to the others, in the long run."""
    alone = simulate(chain, window, micro_batches)
    return replace(alone, makespan_s=micro_batches * long_run_s(chain, window))


def _slack_or_better(chain: Chain, micro_batches: int, limits: Sequence[int]) -> Choice:
    """The fastest of slack, the budget windows and strict by their timelines; of equally fast ones the first.

    A timeline is computed only where the cycle form, which is never longer, says that it could be the fastest.
    """
    slack = slack_window(chain.delay_s, chain.pace_s, micro_batches)
    roomy = fits(slack, limits)
    if roomy:
        timeline = simulate(chain, slack, micro_batches)
        if timeline.makespan_s <= bottleneck_bound_s(chain, micro_batches) * (1 + WORTH_A_SEARCH):
            return Choice(Schedule.SLACK_1F1B, slack, timeline)
    strict = strict_window(chain.stages, micro_batches)
    if not fits(strict, limits):
        return Choice(Schedule.ONE_F_ONE_B, strict, simulate(chain, strict, micro_batches))
    budget = budget_windows(chain, micro_batches, limits)
    window, *others = dict.fromkeys((slack, *budget, strict) if roomy else (*budget, strict))
    timeline = simulate(chain, window, micro_batches)
    for other, cycle_s in zip(others, _cycle_forms(chain, micro_batches, others), strict=True):
        if cycle_s < timeline.makespan_s * (1 - ROUNDING):
            tried = simulate(chain, other, micro_batches)
            if tried.makespan_s < timeline.makespan_s * (1 - ROUNDING):
                window, timeline = other, tried
    fallen_back = window == strict and not roomy
    return Choice(Schedule.ONE_F_ONE_B if fallen_back else Schedule.SLACK_1F1B, window, timeline)


def budget_windows(chain: Chain, micro_batches: int, limits: Sequence[int]) -> tuple[Window, ...]:
    """Windows within `limits`, which must hold the strict one: the first three of the least λ that fits.

    First as much as fits of the *ideal* window, the least that would keep the pace. Last of the three the *eager*
    one: every stage runs all forwards that arrive while it waits for its first backward, as far as that fits. It
    pays before the slowest stage, which then hardly ever stands still; the second is eager up to that stage and
    ideal after it. The others give up λ for more in flight, for pipelines that end before λ sets in: with loops
    of 3/2 and twice the pace, the latter being lock-step, which costs little on stages that hold M and nearly M.
    """
    ideal, eager, *others = compiled(budget_caps)(
        *_arrays(chain), np.array(limits, dtype=np.int64), micro_batches
    ).tolist()
    paces = [a + b for a, b in zip(chain.forward_s, chain.backward_s, strict=True)]
    turn = paces.index(max(paces)) + 1
    return tuple(map(tuple, (ideal, eager[:turn] + ideal[turn:], eager, *others)))


def budget_caps(
    forward: Floats, backward: Floats, delay: Floats, transfer: Floats, limits: Counts, micro_batches: int
) -> NDArray[np.int64]:
    """Rows of caps, to be compiled: ideal and eager for the least λ that fits, ideal for 3/2 and twice the pace.

    A span s … t is a loop of `tokens` = c_s − c_t + 1 micro-batches. It is no slower than λ if it takes at most
    `tokens` × λ. Nor does it hold anything back if it can never close: forward m + c_s must exist when backward m
    has come home, hence not where 2·c_s ≥ M + c_t − 1.
    """
    stages = forward.size
    begin, end = np.empty(stages), np.empty(stages)  # of each stage on the way there and back
    way = pace = 0.0
    for t in range(stages):
        if t > 0:
            way += 2 * delay[t - 1]
            pace = max(pace, transfer[t - 1])
        begin[t] = way
        way += forward[t] + backward[t]
        end[t] = way
        pace = max(pace, forward[t] + backward[t])
    ideal, eager = np.ones(stages, dtype=np.int64), np.ones(stages, dtype=np.int64)
    for s in range(stages - 2, -1, -1):
        ideal[s] = ideal[s + 1]
        for t in range(s + 1, stages):
            tokens = math.ceil((end[t] - begin[s]) / pace - 1e-9)
            ideal[s] = max(ideal[s], min(ideal[t] - 1 + tokens, (micro_batches + ideal[t]) // 2))
    arrives = 0.0  # a forward each so many seconds, at best
    for t in range(stages):
        arrives = max(arrives, forward[t], transfer[t - 1] if t > 0 else 0.0)
        most, waits = min(limits[t], micro_batches), way - end[t]
        ideal[t] = min(ideal[t], most)
        eager[t] = max(ideal[t], min(most, 1 + math.ceil(waits / arrives - 1e-9)) if arrives > 0 else most)
    found = np.empty((4, stages), dtype=np.int64)
    low, high, searching = pace, way, True  # with λ = the whole way, one in flight is enough
    row, target = 0, pace
    while row < 4:
        caps = found[row]
        for t in range(stages):
            cap = eager[t] if row == 1 else ideal[t]
            for s in range(t):
                tokens = math.ceil((end[t] - begin[s]) / target - 1e-9)
                cap = min(cap, caps[s], max(caps[s] + 1 - tokens, 2 * caps[s] + 1 - micro_batches))
            caps[t] = cap
            if cap < 1:
                break
        if searching:
            if cap < 1:
                low = target
            else:
                high = target
            searching = high > low * (1 + 1e-6)
            target = (low + high) / 2 if searching else high
        else:
            row += 1
            target = max(high, pace * (row + 1) / 2)
    return found


def _cycle_forms(chain: Chain, micro_batches: int, windows: Sequence[Window]) -> list[float]:
    arrays, form = _arrays(chain), compiled(forms)
    return [form(*arrays, caps, micro_batches)[0] for caps in np.array(windows, dtype=np.int64)]


def _arrays(chain: Chain) -> tuple[Floats, Floats, Floats, Floats]:
    return (
        np.array(chain.forward_s, dtype=np.float64),
        np.array(chain.backward_s, dtype=np.float64),
        np.array(chain.delay_s, dtype=np.float64),
        np.array(chain.transfer_s, dtype=np.float64),
    )
