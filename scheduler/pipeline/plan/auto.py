"""`schedule: auto`: the fastest order for one chain of stages on its own links, within its own memory.

Candidates are the windows of whole backwards (`choice.py`: strict and slack 1F1B and budget windows; GPipe is never
faster than these where it fits), the same windows with split backwards whose W lags behind I (ZB-H1 is one of them),
and, where an order need not be told in a few numbers, what the rules of `generate.py` lead to. Which is the fastest
the timeline decides, with non-blocking sends; of equally fast ones the first in this order, which is the simplest.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate, pairwise

import numpy as np

from scheduler.job import Schedule
from scheduler.pipeline.choice import ROUNDING, WORTH_A_SEARCH, Choice, budget_windows, choose_window
from scheduler.pipeline.kernel import Floats, compiled
from scheduler.pipeline.plan.generate import ListScheduler, Rule, follow, rules
from scheduler.pipeline.plan.ir import Link, Order, Pipeline, StageCost, Worker
from scheduler.pipeline.plan.lag_kernel import run_lagged
from scheduler.pipeline.plan.layouts import line
from scheduler.pipeline.plan.orders import windowed
from scheduler.pipeline.plan.passes import place
from scheduler.pipeline.plan.split_orders import lagged
from scheduler.pipeline.schedules import Window, fits, slack_window, strict_window
from scheduler.pipeline.timeline import Chain, Timeline

Lag = tuple[int, ...]
"""For each stage how many micro-batches W runs behind I; empty where backwards are whole."""

MOST_RULE_WORK = 40_000_000
"""Actions × stages of all rules together: the rules that would go beyond are not tried. Some seconds at most."""


@dataclass(frozen=True, slots=True)
class SplitChain:
    """A chain whose backwards may be split, and its memory.

    `weight_gradient_s` is the part of `chain.backward_s` that is W: 0 where it cannot be split off. `limits[s]` is how
    many micro-batches stage s can hold; it holds one from the start of F to the end of B or I, and from there to the
    end of W a part of it, `pending_share`; all of it where that is empty. A split backward takes `splitting_s` longer
    than a whole one: it is counted with I, and empty where it is nothing.
    """

    chain: Chain
    weight_gradient_s: tuple[float, ...]
    limits: tuple[int, ...]
    splitting_s: tuple[float, ...] = ()
    pending_share: tuple[float, ...] = ()

    @property
    def input_gradient_s(self) -> tuple[float, ...]:
        """The part of split backwards for which the stage before waits."""
        more_s = self.splitting_s or (0.0,) * self.chain.stages
        return tuple(
            b - w + more
            for b, w, more in zip(self.chain.backward_s, self.weight_gradient_s, more_s, strict=True)
        )

    @property
    def shares(self) -> tuple[float, ...]:
        """`pending_share` of every stage."""
        return self.pending_share or (1.0,) * self.chain.stages

    def longest_lag(self, window: Sequence[int]) -> Lag:
        """W as far behind as in ZB-H1, where the memory holds it: then no stage's W keeps another's I waiting."""
        return tuple(
            min(window[0] - cap, int((limit - cap) / share) if share else window[0])
            for cap, limit, share in zip(window, self.limits, self.shares, strict=True)
        )

    def pipeline(self, *, split: bool = True) -> Pipeline:
        """The same as stages on workers: a region between any two cuts, a byte for a micro-batch in flight. With whole
        backwards (not `split`) nothing is spent on splitting them."""
        chain = self.chain
        inputs_s = self.input_gradient_s if split else replace(self, splitting_s=()).input_gradient_s
        costs = [
            StageCost(forward_s, input_s, weight_s, inflight_bytes=1.0, pending_bytes=share)
            for forward_s, input_s, weight_s, share in zip(
                chain.forward_s, inputs_s, self.weight_gradient_s, self.shares, strict=True
            )
        ]
        regions = [f"region {number}" for number in accumulate((0, *(delay > 0 for delay in chain.delay_s)))]
        links = [
            Link(*ends, latency_s, 8 / transfer_s if transfer_s else math.inf)
            for cut, latency_s, transfer_s in zip(
                pairwise(regions), chain.latency_s, chain.transfer_s, strict=True
            )
            if cut[0] != cut[1]
            for ends in (cut, cut[::-1])
        ]
        workers = [Worker(region, limit) for region, limit in zip(regions, self.limits, strict=True)]
        return place(line(chain.stages), costs, workers, links)


@dataclass(frozen=True, slots=True)
class Fastest:
    """What `auto` comes to, its iteration's length, and that of the best window of whole backwards beside it."""

    schedule: Schedule
    window: Window
    lag: Lag
    rule: Rule | None
    makespan_s: float
    whole: Choice

    def order(self, split: SplitChain, micro_batches: int) -> Order:
        """The actions of every rank."""
        if self.rule is not None:
            made = follow(split.pipeline(split=self.rule.split), micro_batches, self.rule)
            if made is None:
                raise AssertionError(self.rule)  # it ran with the same numbers when it was chosen
            return made.order
        return (
            lagged(self.window, self.lag, micro_batches) if self.lag else windowed(self.window, micro_batches)
        )


def fastest_window(split: SplitChain, micro_batches: int) -> Fastest:
    """The fastest that a window and a lag can tell: what a placement has. Some tenths of a millisecond.

    Where not even strict 1F1B fits, that is the answer, as in `choose_window`.
    """
    whole = choose_window(Schedule.SLACK_1F1B, split.chain, micro_batches, split.limits)
    best = Fastest(whole.schedule, whole.window, (), None, whole.timeline.makespan_s, whole)
    if not fits(whole.window, split.limits) or best.makespan_s <= _worth_more(split, micro_batches):
        return best
    for window, lag in _lagged_windows(split, micro_batches, whole.window):
        makespan_s = lagged_makespan_s(split, window, lag, micro_batches)
        if makespan_s < best.makespan_s * (1 - ROUNDING):
            name = Schedule.ZB_H1 if _is_zb_h1(window, lag, micro_batches) else Schedule.LAGGED_1F1B
            best = Fastest(name, window, lag, None, makespan_s, whole)
    return best


def lagged_timeline(
    split: SplitChain, window: Sequence[int], lag: Sequence[int], micro_batches: int
) -> Timeline:
    """One iteration with this window and lag: the same as that of the plan of `lagged`."""
    turns_s = zip(split.chain.forward_s, split.input_gradient_s, split.weight_gradient_s, strict=True)
    return Timeline(
        lagged_makespan_s(split, window, lag, micro_batches),
        tuple(micro_batches * sum(turn_s) for turn_s in turns_s),
        tuple(min(cap + behind, micro_batches) for cap, behind in zip(window, lag, strict=True)),
    )


def lagged_makespan_s(
    split: SplitChain, window: Sequence[int], lag: Sequence[int], micro_batches: int
) -> float:
    """How long it takes, compiled."""
    caps = np.minimum(np.array(window, dtype=np.int64), micro_batches)
    lags = np.array(lag, dtype=np.int64)
    return float(compiled(run_lagged)(*_arrays(split), caps, lags, micro_batches))


def fastest(split: SplitChain, micro_batches: int) -> Fastest:
    """The fastest of all: also of the orders that list scheduling makes."""
    best = fastest_window(split, micro_batches)
    if not fits(best.window, split.limits) or best.makespan_s <= _worth_more(split, micro_batches):
        return best
    made = best_rule(split, micro_batches)
    if made is None or made[1] >= best.makespan_s * (1 - ROUNDING):
        return best
    return Fastest(Schedule.GENERATED, made[0].eager, (), *made, best.whole)


def generated(split: SplitChain, micro_batches: int) -> Fastest | None:
    """The fastest of what list scheduling makes, whatever else there is; none where the memory holds that up."""
    made = best_rule(split, micro_batches)
    if made is None:
        return None
    whole = choose_window(Schedule.SLACK_1F1B, split.chain, micro_batches, split.limits)
    return Fastest(Schedule.GENERATED, made[0].eager, (), *made, whole)


@lru_cache(maxsize=64)
def best_rule(split: SplitChain, micro_batches: int) -> tuple[Rule, float] | None:
    """The rule of list scheduling that leads to the shortest iteration, and its length, seconds, as far as
    `MOST_RULE_WORK` goes; none where the memory holds up all of them. Where nothing of a backward can be split off, it
    stays whole."""
    splits = any(split.weight_gradient_s)
    lists = {each: ListScheduler(split.pipeline(split=each), micro_batches) for each in (False, True)}
    work = 0
    best: tuple[Rule, float] | None = None
    for rule in rules(split.pipeline(split=False), micro_batches):
        if rule.split and not splits:
            continue
        work += split.chain.stages**2 * micro_batches * (3 if rule.split else 2)
        if work > MOST_RULE_WORK:
            break
        makespan_s, _ = lists[rule.split].run(rule)
        if makespan_s >= 0 and (best is None or makespan_s < best[1] * (1 - ROUNDING)):
            best = rule, makespan_s
    return best


def split_bound_s(split: SplitChain, micro_batches: int) -> float:
    """What no order is faster than, seconds, whatever it splits: the busiest stage after its fill, and the first
    micro-batch's way there and back + (M − 1) × the longest F, I or transfer. O(K)."""
    chain, fill_s, busiest_s = split.chain, 0.0, 0.0
    for forward_s, backward_s, delay_s in zip(
        chain.forward_s, chain.backward_s, (*chain.delay_s, 0.0), strict=True
    ):
        busiest_s = max(busiest_s, fill_s + micro_batches * (forward_s + backward_s))
        fill_s += forward_s + delay_s
    input_s = [b - w for b, w in zip(chain.backward_s, split.weight_gradient_s, strict=True)]
    way_s = sum(chain.forward_s) + sum(input_s) + 2 * sum(chain.delay_s)
    longest_s = max(*chain.forward_s, *input_s, *chain.transfer_s)
    return max(busiest_s, way_s + split.weight_gradient_s[0] + (micro_batches - 1) * longest_s)


def _worth_more(split: SplitChain, micro_batches: int) -> float:
    return split_bound_s(split, micro_batches) * (1 + WORTH_A_SEARCH)


def _lagged_windows(split: SplitChain, micro_batches: int, chosen: Window) -> Iterator[tuple[Window, Lag]]:
    """Every window worth it, with W right after I, and as far behind as it pays and fits."""
    chain = split.chain
    windows = (
        strict_window(chain.stages, micro_batches),
        chosen,
        slack_window(chain.delay_s, chain.pace_s, micro_batches),
        *budget_windows(chain, micro_batches, split.limits),
    )
    for window in dict.fromkeys(windows):
        if fits(window, split.limits):
            yield from (
                (window, lag) for lag in dict.fromkeys((split.longest_lag(window), (0,) * len(window)))
            )


def _is_zb_h1(window: Window, lag: Lag, micro_batches: int) -> bool:
    strict = strict_window(len(window), micro_batches)
    return window == strict and all(
        behind == strict[0] - cap for cap, behind in zip(strict, lag, strict=True)
    )


def _arrays(split: SplitChain) -> list[Floats]:
    """What `run_lagged` takes of it."""
    chain = split.chain
    times = (
        chain.forward_s,
        split.input_gradient_s,
        split.weight_gradient_s,
        chain.latency_s,
        chain.transfer_s,
    )
    return [np.array(each, dtype=np.float64) for each in times]
