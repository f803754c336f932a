"""The published orders with two stages a rank, as placements get them: laid out, with numbers that are worked out once.

An order follows from its schedule, K and M alone. What it takes of the memory, and the arrays that its timeline is made
from, do so as well.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from scheduler.errors import InvalidValueError
from scheduler.job import Schedule
from scheduler.pipeline.plan import layouts, orders, split_orders
from scheduler.pipeline.plan.generate import hanayo
from scheduler.pipeline.plan.ir import Order
from scheduler.pipeline.plan.layouts import Layout
from scheduler.pipeline.plan.order_run import Computations
from scheduler.pipeline.plan.order_text import OrderText, read, written

PARTS = 2
"""Stages a rank."""
MOST_ACTIONS = 8192
"""Ranks × micro-batches up to which orders that are no windows are worked out, action by action."""
LOOPED_REGIONS = 2
"""Regions that a loop may stand in: its last rank sends to its first, and between those of three there is no cut."""

_ORDERS: dict[Schedule, Callable[[int, int], Order]] = {
    Schedule.INTERLEAVED: lambda ranks, m: orders.interleaved(ranks, PARTS, m),
    Schedule.LOOPED_BFS: lambda ranks, m: orders.looped_breadth_first(ranks, PARTS, m),
    Schedule.ZB_V: split_orders.zb_v,
    Schedule.V_HALF: split_orders.v_half,
    Schedule.DUALPIPEV: split_orders.dual_pipe_v,
    Schedule.HANAYO: lambda ranks, m: hanayo(ranks, 1, m),
}


@dataclass(frozen=True, slots=True)
class LaidOut:
    """An order on its layout. `caps` is for each stage the most that it has in flight."""

    layout: Layout
    text: OrderText
    computations: Computations
    caps: tuple[int, ...]

    def held(self, pending_share: float) -> tuple[float, ...]:
        """As `Computations.most_held`."""
        return _held(self.computations, self.layout.ranks, pending_share)

    @property
    def order(self) -> Order:
        """What every rank does."""
        return read(self.text, self.layout)


def layout_of(schedule: Schedule, ranks: int) -> Layout:
    """Which rank each stage stands on under a schedule of a job."""
    if schedule.loops:
        return layouts.loop(ranks, PARTS)
    return layouts.vee(ranks) if schedule.parts > 1 else layouts.line(ranks)


def require_possible(schedule: Schedule, layers: int, ranks: int, micro_batches: int) -> None:
    """Raise InvalidValueError where there is no such order: the field of the job that stands against it, and what it
    needs. Any number of ranks that the model has layers for is possible with one stage a rank."""
    if schedule.parts == 1:
        return
    if layers % (PARTS * ranks):
        raise InvalidValueError(
            "model.layers", layers, f"a multiple of {PARTS * ranks}: {PARTS} equal stages a rank"
        )
    if ranks * micro_batches > MOST_ACTIONS:
        raise InvalidValueError(
            "training.micro_batches", micro_batches, f"at most {MOST_ACTIONS} ranks × micro-batches"
        )
    if schedule is Schedule.INTERLEAVED and micro_batches % ranks:
        raise InvalidValueError("training.micro_batches", micro_batches, f"a multiple of {ranks} ranks")
    if schedule in (Schedule.ZB_V, Schedule.DUALPIPEV) and micro_batches < 2 * ranks:
        raise InvalidValueError("training.micro_batches", micro_batches, f"at least 2 × {ranks} ranks")


def is_possible(schedule: Schedule, layers: int, ranks: int, micro_batches: int) -> bool:
    """Whether there is such an order."""
    try:
        require_possible(schedule, layers, ranks, micro_batches)
    except InvalidValueError:
        return False
    return True


def messages_a_cut(schedule: Schedule) -> int:
    """How often a micro-batch crosses each cut, in each direction: once on a line, there and back on a V; a loop, which
    may stand in two regions, goes there twice and comes back once."""
    if schedule.loops:
        return 2 * PARTS - 1
    return schedule.parts


@lru_cache(maxsize=256)
def laid_out(schedule: Schedule, ranks: int, micro_batches: int) -> LaidOut:
    """Raises InvalidValueError as `require_possible` does, layers aside."""
    require_possible(schedule, PARTS * ranks, ranks, micro_batches)
    layout = layout_of(schedule, ranks)
    order = _ORDERS[schedule](ranks, micro_batches)
    arrays = Computations.of(order)
    return LaidOut(layout, written(order, layout), arrays, arrays.caps(layout.stages))


@lru_cache(maxsize=1024)
def _held(computations: Computations, ranks: int, pending_share: float) -> tuple[float, ...]:
    return computations.most_held(ranks, pending_share)
