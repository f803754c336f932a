"""Communication-aware event simulation of one training iteration: the truth about how long it takes.

Every stage runs one action at a time, in its fixed order. A boundary has one link per direction that carries messages
in the order they were sent: a message starts when it has been computed and the link is free, occupies the link for
`transfer_s`, and arrives `latency_s` later. Boundaries inside a region have neither (docs/mathematics.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from operator import add

import numpy as np

from scheduler.errors import InvalidValueError
from scheduler.pipeline import kernel
from scheduler.pipeline.schedules import ActionKind, ActionTable, require_window


class SendMode(StrEnum):
    """What a stage does while its message travels: goes on at once, or stands still until it has arrived."""

    NON_BLOCKING = "non-blocking"
    BLOCKING = "blocking"


@dataclass(frozen=True, slots=True)
class Chain:
    """A pipeline in seconds: forward and backward of each of K stages for one micro-batch, and for each of the
    K − 1 boundaries the latency and the time that one message occupies its link, the same in both directions.
    """

    forward_s: tuple[float, ...]
    backward_s: tuple[float, ...]
    latency_s: tuple[float, ...]
    transfer_s: tuple[float, ...]

    def __post_init__(self) -> None:
        stages = len(self.forward_s)
        if not stages or len(self.backward_s) != stages:
            raise InvalidValueError("chain", (stages, len(self.backward_s)), "a forward and backward a stage")
        if len(self.latency_s) != stages - 1 or len(self.transfer_s) != stages - 1:
            raise InvalidValueError(
                "chain", (len(self.latency_s), len(self.transfer_s)), f"{stages - 1} boundaries"
            )
        for times in (self.forward_s, self.backward_s, self.latency_s, self.transfer_s):
            # Written so that NaN fails as well.
            if times and not (min(times) >= 0 and sum(times) < float("inf")):
                raise InvalidValueError("chain", times, "finite times of 0 or more")

    @property
    def stages(self) -> int:
        """K."""
        return len(self.forward_s)

    @property
    def delay_s(self) -> tuple[float, ...]:
        """δ_e of each boundary: latency + transfer, one direction."""
        return tuple(map(add, self.latency_s, self.transfer_s))

    @property
    def pace_s(self) -> float:
        """max (F + B) over the stages: no schedule is faster per micro-batch."""
        pace_s: float = max(map(add, self.forward_s, self.backward_s))
        return pace_s


@dataclass(frozen=True, slots=True)
class Timeline:
    """One iteration: its length, how long each stage computes, and the most micro-batches it has in flight."""

    makespan_s: float
    busy_s: tuple[float, ...]
    peak_in_flight: tuple[int, ...]


@lru_cache(maxsize=32768)
def simulate(
    chain: Chain, window: tuple[int, ...], micro_batches: int, send: SendMode = SendMode.NON_BLOCKING
) -> Timeline:
    """The timeline of a windowed schedule (GPipe, strict or slack 1F1B: `schedules`), compiled and memoised.

    Raises InvalidValueError for a window that does not suit the chain.
    """
    require_window(window, chain.stages, micro_batches)
    caps = np.minimum(np.array(window, dtype=np.int64), micro_batches)
    makespan_s = kernel.compiled(kernel.run)(
        np.array(chain.forward_s, dtype=np.float64),
        np.array(chain.backward_s, dtype=np.float64),
        np.array(chain.latency_s, dtype=np.float64),
        np.array(chain.transfer_s, dtype=np.float64),
        caps,
        micro_batches,
        send is SendMode.BLOCKING,
    )
    busy_s = tuple(micro_batches * turn_s for turn_s in map(add, chain.forward_s, chain.backward_s))
    return Timeline(float(makespan_s), busy_s, tuple(caps.tolist()))


def simulate_table(chain: Chain, table: ActionTable, send: SendMode = SendMode.NON_BLOCKING) -> Timeline:
    """The timeline of any table of actions, by running every stage until it has to wait for a message.

    Plain Python, some fifty times slower than `simulate`, with which it agrees on windowed schedules to the last
    digit. Raises InvalidValueError for a table in which stages wait for each other forever.
    """
    run = _TableRun(chain, table, send is SendMode.BLOCKING)
    while run.advance():
        pass
    return run.timeline()


class _TableRun:
    """The state of `simulate_table`: what each stage has run, and which messages are on their way."""

    def __init__(self, chain: Chain, table: ActionTable, blocking: bool) -> None:
        if len(table) != chain.stages:
            raise InvalidValueError("table", len(table), f"the actions of {chain.stages} stages")
        self._chain, self._table, self._blocking = chain, table, blocking
        self._next = [0] * chain.stages
        self._free_s = [0.0] * chain.stages
        self._busy_s = [0.0] * chain.stages
        self._in_flight = [0] * chain.stages
        self._peak = [0] * chain.stages
        self._end_s = 0.0
        self._link_free_s: dict[tuple[int, int], float] = {}
        self._arrival_s: dict[tuple[int, ActionKind, int], float] = {}
        for each in table[0]:
            self._arrival_s[0, ActionKind.FORWARD, each.micro_batch] = 0.0
        for each in table[-1]:
            self._arrival_s[chain.stages - 1, ActionKind.BACKWARD, each.micro_batch] = 0.0

    def advance(self) -> bool:
        """Run every stage as far as its messages let it; whether anything ran."""
        before = sum(self._next)
        for stage, actions in enumerate(self._table):
            while self._next[stage] < len(actions) and self._run(stage):
                self._next[stage] += 1
        return sum(self._next) > before

    def timeline(self) -> Timeline:
        """What came out, once nothing can advance any more."""
        stuck = [stage for stage, actions in enumerate(self._table) if self._next[stage] < len(actions)]
        if stuck:
            action = self._table[stuck[0]][self._next[stuck[0]]]
            raise InvalidValueError(
                "table",
                f"stage {stuck[0]}: {action.kind}{action.micro_batch}",
                "an order that never waits forever",
            )
        return Timeline(self._end_s, tuple(self._busy_s), tuple(self._peak))

    def _run(self, stage: int) -> bool:
        kind, micro_batch = self._table[stage][self._next[stage]]
        arrival_s = self._arrival_s.get((stage, kind, micro_batch))
        if arrival_s is None:
            return False
        forward = kind is ActionKind.FORWARD
        cost_s = self._chain.forward_s[stage] if forward else self._chain.backward_s[stage]
        end_s = max(self._free_s[stage], arrival_s) + cost_s
        self._busy_s[stage] += cost_s
        self._end_s = max(self._end_s, end_s)
        self._in_flight[stage] += 1 if forward else -1
        self._peak[stage] = max(self._peak[stage], self._in_flight[stage])
        target = stage + 1 if forward else stage - 1
        self._free_s[stage] = end_s
        if 0 <= target < self._chain.stages:
            arrived_s = self._send(stage, target, end_s)
            self._arrival_s[target, kind, micro_batch] = arrived_s
            if self._blocking:
                self._free_s[stage] = arrived_s
        return True

    def _send(self, stage: int, target: int, end_s: float) -> float:
        boundary = min(stage, target)
        start_s = max(end_s, self._link_free_s.get((stage, target), 0.0))
        sent_s = start_s + self._chain.transfer_s[boundary]
        self._link_free_s[stage, target] = sent_s
        return sent_s + self._chain.latency_s[boundary]
