"""Who runs which action when: in-flight windows of each schedule, and the tables of actions made from them.

A window holds for each stage the most micro-batches it may have in flight (forward done, backward not). Stage s runs
window[s] forwards, then one backward and one forward in turn, then the remaining backwards. GPipe, strict 1F1B and
slack 1F1B differ in the window alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import StrEnum
from itertools import pairwise
from operator import le
from typing import NamedTuple

from scheduler.errors import InvalidValueError


class ActionKind(StrEnum):
    """What a stage does with a micro-batch."""

    FORWARD = "F"
    BACKWARD = "B"


class Action(NamedTuple):
    """One step of a stage: the forward or backward of one micro-batch (from 0)."""

    kind: ActionKind
    micro_batch: int


Window = tuple[int, ...]
"""For each stage the most micro-batches it may have in flight."""

ActionTable = tuple[tuple[Action, ...], ...]
"""For each stage its actions, in the order in which it runs them."""


def gpipe_window(stages: int, micro_batches: int) -> Window:
    """All forwards, then all backwards (Huang et al., arXiv 1811.06965)."""
    return (micro_batches,) * stages


def strict_window(stages: int, micro_batches: int) -> Window:
    """Strict 1F1B: K − s at stage s, never more than there are micro-batches (PipeDream-flush, arXiv 2006.09503)."""
    return tuple(min(stages - stage, micro_batches) for stage in range(stages))


def slack_window(delay_s: Sequence[float], pace_s: float, micro_batches: int) -> Window:
    """1F1B with as many more in flight as the delays need: c_s = 1 + Σ_{e≥s} (1 + ⌈2δ_e / pace⌉), at most M.

    `delay_s[e]` is δ_e, latency + transfer time of boundary e in one direction; `pace_s` is max (F + B) over the
    stages. With this window no round trip over a boundary holds the pipeline back: λ = pace (docs/mathematics.md).
    """
    caps = [1]
    for delay in reversed(delay_s):
        caps.append(caps[-1] + 1 + math.ceil(2 * delay / pace_s))
    return tuple(min(cap, micro_batches) for cap in reversed(caps))


def fits(window: Sequence[float], limits: Sequence[float]) -> bool:
    """Whether every stage can hold its cap."""
    return all(map(le, window, limits))


def require_window(window: Sequence[int], stages: int, micro_batches: int) -> None:
    """Raise InvalidValueError for a window with which the pipeline could not run to its end."""
    if micro_batches < 1:
        raise InvalidValueError("micro_batches", micro_batches, "a whole number of at least 1")
    if len(window) != stages:
        raise InvalidValueError("window", tuple(window), f"one cap for each of {stages} stages")
    if min(window) < 1:
        raise InvalidValueError("window", tuple(window), "caps of at least 1")
    if any(min(later, micro_batches) > earlier for earlier, later in pairwise(window)):
        # The later stage would wait for a forward that the earlier one runs only after the later one's backward.
        raise InvalidValueError("window", tuple(window), "caps that never grow from one stage to the next")


def action_table(window: Sequence[int], micro_batches: int) -> ActionTable:
    """The actions of every stage under a window; what a worker executes."""
    require_window(window, len(window), micro_batches)
    return tuple(_stage_actions(min(cap, micro_batches), micro_batches) for cap in window)


def _stage_actions(cap: int, micro_batches: int) -> tuple[Action, ...]:
    actions = [Action(ActionKind.FORWARD, each) for each in range(cap)]
    for each in range(micro_batches):
        actions.append(Action(ActionKind.BACKWARD, each))
        if each + cap < micro_batches:
            actions.append(Action(ActionKind.FORWARD, each + cap))
    return tuple(actions)
