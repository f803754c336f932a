"""Closed forms for how long an iteration of a windowed 1F1B pipeline takes: they bound it, and explain what binds.

With T_j = F_j + B_j, δ_e the delay of boundary e in one direction, c_s the window (capped at M micro-batches) and
R = Σ T_j + 2 Σ δ_e the first micro-batch's way there and back. They follow from the event graph of the timeline, in
which only cycles over a span of stages (s … t) are elementary:

    λ(s, t) = [Σ_{j=s..t} T_j + 2 Σ_{e=s..t−1} δ_e] / (c_s − c_t + 1)

`timeline.simulate` is exact and, compiled, about as fast: decide with it, prune and explain with these. All of them
hold for non-blocking sends and for every window: strict, slack, chosen, GPipe (which `iteration_forms` gives exactly).
Derivation, and how near they come on random pipelines: docs/mathematics.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import add

import numpy as np

from scheduler.pipeline.kernel import Counts, Floats, compiled
from scheduler.pipeline.schedules import require_window
from scheduler.pipeline.timeline import Chain


def long_run_s(chain: Chain, window: tuple[int, ...]) -> float:
    """λ: the exact time per micro-batch in the long run, seconds: the critical cycle, or the slowest link.

    A window is sound, that is no stage ever waits for a round trip, iff this equals `chain.pace_s`.
    """
    require_window(window, chain.stages, max(window))
    work = np.concatenate(([0.0], np.cumsum(np.array(chain.forward_s) + np.array(chain.backward_s))))
    delay = np.concatenate(([0.0], np.cumsum(np.array(chain.delay_s))))
    spans = work[None, 1:] - work[:-1, None] + 2 * (delay[None, :] - delay[:, None])
    caps = np.array(window)
    cycles = spans / np.maximum(caps[:, None] - caps[None, :] + 1, 1)
    return max(float(np.triu(cycles).max()), max(chain.transfer_s, default=0.0))


def bottleneck_bound_s(chain: Chain, micro_batches: int) -> float:
    """What no order of forwards and backwards is faster than, seconds: the busiest stage or link, fill and drain.

    Of max over s of [way to stage s + M·T_s + way back], and R + (M−1)·max (F, B, transfer): the last of M messages
    or actions of one kind still has the rest of its way before it. O(K), for any memory and any window.
    """
    ways_s = busiest_s = 0.0
    for turn_s, delay_s in zip(
        map(add, chain.forward_s, chain.backward_s), (*chain.delay_s, 0.0), strict=True
    ):
        busy_s = ways_s + micro_batches * turn_s
        if busy_s > busiest_s:
            busiest_s = busy_s
        ways_s += turn_s + 2 * delay_s
    longest_s = max(map(max, (chain.forward_s, chain.backward_s, chain.transfer_s or (0.0,))))
    return max(busiest_s, ways_s + (micro_batches - 1) * longest_s)


@dataclass(frozen=True, slots=True)
class IterationForms:
    """One iteration, seconds: `cycle_s` is never longer than the timeline, `safe_s` never shorter, both are near."""

    cycle_s: float
    safe_s: float


def iteration_forms(chain: Chain, window: tuple[int, ...], micro_batches: int) -> IterationForms:
    """The cycle form and the safe form. O(K²), however many micro-batches.

    Raises InvalidValueError for a window that does not suit the chain.
    """
    require_window(window, chain.stages, micro_batches)
    cycle_s, safe_s = compiled(forms)(
        np.array(chain.forward_s, dtype=np.float64),
        np.array(chain.backward_s, dtype=np.float64),
        np.array(chain.delay_s, dtype=np.float64),
        np.array(chain.transfer_s, dtype=np.float64),
        np.array(window, dtype=np.int64),
        micro_batches,
    )
    return IterationForms(cycle_s, safe_s)


def forms(
    forward: Floats, backward: Floats, delay: Floats, transfer: Floats, caps: Counts, micro_batches: int
) -> tuple[float, float]:
    """(cycle, safe) of `iteration_forms`, to be compiled.

    The longest path through the event graph goes down to a stage, turns back there, perhaps goes round in cycles
    under a topmost stage s for the u = M − 1 − c_s micro-batches that they can advance, turns at a stage for the
    last time, and comes home. What a path that turns at stage t gains before its first turn is (c_t − 1)·`ahead`,
    after its last turn (c_t − 1)·`behind`. On links, and on open stages (c ≥ M), it may gain that for every
    micro-batch: `ahead_open`, `behind_open`. `cycle` takes whole cycles of one span, and what is left over from the
    slowest stage of the span; `safe` takes fractions of the slowest cycle at or after s.
    """
    stages = forward.size
    caps = np.minimum(caps, micro_batches)
    ways = np.empty(stages)  # there and back, from the first stage to the end of each
    ahead, ahead_open = np.empty(stages), np.empty(stages)
    behind, behind_open = np.empty(stages), np.empty(stages)
    way = link = longest_f = longest_b = open_f = open_b = 0.0
    for t in range(stages):
        if t > 0:
            way += 2 * delay[t - 1]
            link = max(link, transfer[t - 1])
        way += forward[t] + backward[t]
        longest_f, longest_b = max(longest_f, forward[t]), max(longest_b, backward[t])
        if caps[t] >= micro_batches:
            open_f, open_b = max(open_f, forward[t]), max(open_b, backward[t])
        ways[t] = way
        ahead[t], ahead_open[t] = max(longest_f, link), max(open_f, link)
        behind[t], behind_open[t] = max(longest_b, link), max(open_b, link)
    cycle = safe = 0.0
    for t in range(stages):  # paths that turn once
        before, after = (caps[t] - 1) * ahead[t], (caps[t] - 1) * behind[t]
        whole = micro_batches - 1
        cycle = max(cycle, ways[t] + before + whole * behind_open[t], ways[t] + whole * ahead_open[t] + after)
        rest = (micro_batches - caps[t]) * max(ahead[t], behind[t])
        safe = max(safe, ways[t] + before + after + rest)
    enter = leave = 0.0
    slowest = max(ahead[-1], behind[-1])  # seconds a micro-batch
    for s in range(stages - 1, -1, -1):  # paths that turn more often, s the topmost stage between
        enter = max(enter, ways[s] + (caps[s] - 1) * ahead[s])
        leave = max(leave, ways[s] + (caps[s] - 1) * behind[s])
        left = micro_batches - 1 - caps[s]
        if left < 0:
            continue
        above = ways[s] - forward[s] - backward[s]
        rounds = busiest = enter_open = leave_open = 0.0
        for t in range(s, stages):
            tokens = caps[s] - caps[t] + 1
            span = ways[t] - above
            busiest = max(busiest, forward[t] + backward[t])
            if tokens <= left:
                closed = left // tokens
                rounds = max(rounds, closed * span + (left - closed * tokens) * busiest)
                slowest = max(slowest, span / tokens)
            enter_open = max(enter_open, ways[t] + (caps[t] - 1) * ahead[t] + left * ahead_open[t])
            leave_open = max(leave_open, ways[t] + (caps[t] - 1) * behind[t] + left * behind_open[t])
        cycle = max(
            cycle, enter + leave + rounds - above, enter_open + leave - above, enter + leave_open - above
        )
        safe = max(safe, enter + leave + left * slowest - above)
    return cycle, safe
