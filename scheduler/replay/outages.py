"""The cluster as it is while nodes fail and come back."""

from __future__ import annotations

import math
from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from scheduler.cluster import Cluster, PoolKey
from scheduler.placement import Placement
from scheduler.replay.faults import NodeFault
from scheduler.replay.promises import Pending
from scheduler.replay.running import Run

_REMEMBERED: Final = 32
"""The same nodes are often down again: what was derived from a cluster then is still known."""


@dataclass(frozen=True, slots=True)
class Loss:
    """GPUs that a pool loses: those at the positions `first` … `last` (excluded) of all that are up.

    Jobs hold the first positions, in the order in which they began, then come the free ones. So a job is hit in
    proportion to what it holds, and small jobs that share a node are hit together.
    """

    pool: PoolKey
    first: int
    last: int


class Outages:
    """Goes through the faults in their order. `cluster` is what is up now."""

    def __init__(self, whole: Cluster, faults: Sequence[NodeFault]) -> None:
        self.begun = 0
        """How many faults have begun."""
        self.cluster = whole
        self._whole = whole
        self._faults = faults
        self._events = sorted(_events(faults))
        self._next = 0
        self._lost: Counter[PoolKey] = Counter()
        self._taken: dict[int, int] = {}
        self._known: OrderedDict[tuple[tuple[PoolKey, int], ...], Cluster] = OrderedDict({(): whole})

    @property
    def any_down(self) -> bool:
        """Whether any node is down."""
        return bool(self._taken)

    def next_s(self) -> float | None:
        """When a node fails or comes back next."""
        return self._events[self._next][0] if self._next < len(self._events) else None

    def until(self, now_s: float) -> Iterator[Loss | None]:
        """What happens until then, one by one: a loss, or None where a node has come back. `cluster` follows."""
        while self._next < len(self._events) and self._events[self._next][0] <= now_s:
            _, kind, index = self._events[self._next]
            self._next += 1
            if kind == _BEGINS:
                yield self._begin(index)
            else:
                self._lost[self._faults[index].pool] -= self._taken.pop(index)
                self.cluster = self._as_it_is()
                yield None

    def _begin(self, index: int) -> Loss:
        fault = self._faults[index]
        up = self.cluster.pools[fault.pool].gpus
        gpus = min(fault.gpus, up)
        self.begun += 1
        self._taken[index] = gpus
        self._lost[fault.pool] += gpus
        self.cluster = self._as_it_is()
        # One of the windows of that size; the last one is moved back so that it is whole.
        windows = math.ceil(up / gpus) if gpus else 0
        first = min(int(fault.place * windows) * gpus, up - gpus)
        return Loss(fault.pool, first, first + gpus)

    def _as_it_is(self) -> Cluster:
        lost = tuple(sorted((pool, gpus) for pool, gpus in self._lost.items() if gpus))
        known = self._known.get(lost)
        if known is None:
            pools = dict(self._whole.pools)
            for key, gpus in lost:
                pools[key] = replace(pools[key], gpus=pools[key].gpus - gpus)
            known = self._known[lost] = replace(self._whole, pools=pools)
            if len(self._known) > _REMEMBERED:
                self._known.popitem(last=False)
        self._known.move_to_end(lost)
        return known


def hit_by(loss: Loss, running: Iterable[Run]) -> list[Run]:
    """The jobs that hold any of the lost GPUs."""
    hit, position = [], 0
    for run in sorted(running, key=lambda each: (each.start_s, each.key)):
        gpus = _gpus_in(loss.pool, run.allocation.placement)
        if gpus and position < loss.last and position + gpus > loss.first:
            hit.append(run)
        position += gpus
    return hit


def beyond(
    pool: PoolKey, pending: Sequence[Pending], staying: Iterable[Run], cluster: Cluster
) -> list[Pending]:
    """The promises, the last ones first, that a pool cannot keep any more beside the jobs that stay."""
    level = sum(_gpus_in(pool, run.allocation.placement) for run in staying)
    level += sum(_gpus_in(pool, each.promise.placement) for each in pending)
    broken = []
    for each in reversed(pending):
        gpus = _gpus_in(pool, each.promise.placement)
        if level > cluster.pools[pool].gpus and gpus:
            broken.append(each)
            level -= gpus
    return broken


def _gpus_in(pool: PoolKey, placement: Placement) -> int:
    return sum(each.gpus for each in placement.segments if (each.region, each.gpu_type) == pool)


_ENDS, _BEGINS, _ENDS_AT_ONCE = range(3)
"""Order of what happens at one instant. A fault of no length still begins before it ends."""


def _events(faults: Sequence[NodeFault]) -> Iterator[tuple[float, int, int]]:
    for index, fault in enumerate(faults):
        yield fault.start_s, _BEGINS, index
        if fault.end_s < math.inf:
            yield fault.end_s, _ENDS if fault.end_s > fault.start_s else _ENDS_AT_ONCE, index
