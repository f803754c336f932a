"""What could be built for a job on what is free now: one region or a chain, and its score, nearly.

All numbers of stages in all regions are scored at once, as arrays; chains are searched where more stages than one
region has may pay.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Final

import numpy as np

from scheduler.allocator import Share
from scheduler.cost import BYTES_PER_GB, SECONDS_PER_HOUR
from scheduler.pipeline.kernel import compiled
from scheduler.policies.horizon import chain_kernel, region_kernel
from scheduler.policies.horizon.board import Board
from scheduler.policies.horizon.ground import Flags, Floats, Integers
from scheduler.policies.horizon.ladder import Ladder
from scheduler.policies.horizon.scoring import least_price
from scheduler.policies.horizon.work import UNLIMITED, Seat, Work
from scheduler.restart import state_bytes
from scheduler.snapshot import StateSpan

_SEVERAL: Final = 4
"""Regions, the best first, in which a number of stages is offered to a joint choice."""
_FEW_REGIONS: Final = 4
"""Up to so many, every set of them is offered as a chain."""
_APART: Final = 1.1
"""Ratio of the numbers of stages that are offered to it."""
_AS_NEEDED: Final = np.array([1])
_WIDER: Final = np.array([1, 2, 4])
"""What a cut may be granted of what keeps up, where a schedule pays for its delay on every micro-batch."""
_NOTHING: Final = np.zeros((0, 0), dtype=np.bool_)


@dataclass(frozen=True, slots=True)
class Sketch:
    """Something to build, and what its score will be, nearly."""

    score_s: float
    ladder: Ladder
    shares: tuple[Share, ...]
    wider: int = 1
    """What its cuts are granted, in parts of what keeps up."""

    def directions(self, begins: Container[str]) -> Iterator[Sketch]:
        """A chain can begin at either end, where it may begin there; which one does is for the timeline to say, and
        for what it costs to bring its data there, not for names."""
        yield self
        (last, _), _ = self.shares[-1]
        if len(self.shares) > 1 and last in begins:
            yield replace(self, shares=self.shares[::-1])


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a job comes from: what it has to do before it can step anywhere else."""

    work: Work
    stopping_s: float
    restarts: bool
    state: tuple[StateSpan, ...]

    @classmethod
    def of(cls, work: Work, board: Board, seat: Seat | None) -> Origin:
        if seat is None or seat.ready_s > board.now_s:
            return cls(work, 0.0, work.has_state, work.state)
        return cls(work, board.stopping_s(seat), True, seat.state)


class Search:
    """What a ladder offers on what is free: the best rung in one region, and the best chain of each rung."""

    def __init__(self, origin: Origin, board: Board, ladder: Ladder) -> None:
        self.origin, self.board, self.ladder = origin, board, ladder
        work = origin.work
        self.slots: Integers = (
            np.maximum(board.room.gpus[ladder.gpu_type], 0) // work.demand.gpus_per_stage
        ) * board.allowed(work.demand)
        self.before_s: Floats = np.full_like(ladder.iteration_s, origin.stopping_s)
        if origin.restarts:
            self.before_s += board.cluster.restart.fixed_s + ladder.storage_s
        self.run_s = work.steps * ladder.iteration_s + self.before_s
        weights = self.weights = board.weights_of(work)
        # [region]: what the egress of its data is worth if the job begins there; infinite where it may not.
        begin_usd = board.begin_usd(work)
        self.begin = _worth(begin_usd, weights.egress_s) if work.spec.data else begin_usd
        self.access_bps = board.room.access_bps()
        self.hold: Floats = np.asarray(1 + weights.gpu_s * ladder.gpus)
        self.time_score = self.run_s * self.hold
        # [region, rung]: what the electricity, or the rent, of all stages in that region is worth.
        least = least_price(self.hold, weights.electricity_s, ladder.draw_kw)
        self.bill = weights.electricity_s * self._holding_usd(self.run_s, least)
        self.breaks = _NOTHING if work.limits is UNLIMITED else self._breaks()

    def _holding_usd(self, run_s: Floats, least: Floats) -> Floats:
        """[region, rung]: what it costs to hold all stages in that region, prices counting down to `least`."""
        ladder, board = self.ladder, self.board
        electricity = board.prices.over(board.now_s, run_s, least) * ladder.draw_kw / SECONDS_PER_HOUR
        rent = board.prices.rents.get(ladder.gpu_type)
        if rent is None:
            return electricity
        return np.where(
            np.isnan(rent)[:, None],
            electricity,
            np.nan_to_num(rent)[:, None] * ladder.gpus * run_s / SECONDS_PER_HOUR,
        )

    def _breaks(self) -> Flags:
        """[region, rung]: whether all stages in that region would break the job's deadline or budget. What its state
        may still have to travel is not counted."""
        work, board = self.origin.work, self.board
        run_s = work.declared * self.ladder.iteration_s + self.before_s
        usd = self._holding_usd(run_s, np.full_like(run_s, -np.inf)) + board.begin_usd(work)[:, None]
        return np.asarray((board.now_s + run_s > work.limits.until_s) | (usd > work.limits.left_usd))

    def candidates(self, bound: float) -> Iterator[Sketch]:
        """The best of one region, and chains that could be better; all of them below the bound."""
        alone = self._alone()
        if alone is not None and alone.score_s < bound:
            bound = alone.score_s
            yield alone
        if self.origin.work.demand.max_regions > 1:
            slack = self.origin.work.spec.training.schedule.looks_for_window
            yield from self._chains(slice(None), self.slots, _AS_NEEDED if slack else _WIDER, bound)

    def several(self) -> Iterator[Sketch]:
        """For numbers of stages a tenth apart, and those that fill a region: the best regions and the best chains."""
        total = int(np.sort(self.slots)[::-1][: self.origin.work.demand.max_regions].sum())
        last = 0
        for rung, count in enumerate(self.ladder.stages.tolist()):
            if count > total or (count < _APART * last and count not in self.slots):
                continue
            last = count
            score = np.where(
                self.slots >= count, self.time_score[rung] + self.bill[:, rung] + self.begin, np.inf
            )
            for region in np.argsort(score, kind="stable")[:_SEVERAL].tolist():
                if math.isfinite(score[region]):
                    yield Sketch(float(score[region]), self.ladder, ((self._pool(region), count),))
            if count > 1:
                yield from self._several_chains(rung)

    def _several_chains(self, rung: int) -> Iterator[Sketch]:
        """The best chain; of few regions, the best over every set of them."""
        without = list[tuple[int, ...]]([()])
        usable = np.flatnonzero(self.slots).tolist()
        if len(usable) <= _FEW_REGIONS:
            without = [left for count in range(len(usable) - 1) for left in combinations(usable, count)]
        for left in without:
            slots = self.slots.copy()
            slots[list(left)] = 0
            yield from self._chains(slice(rung, rung + 1), slots, _AS_NEEDED, math.inf)

    def _alone(self) -> Sketch | None:
        """The best rung in the best region."""
        room, network, state = self.board.room, self.board.network, self.origin.state
        per_layer = state_bytes(self.origin.work.spec) / sum(span.layers for span in state) if state else 0.0
        score, region, rung = compiled(region_kernel.run)(
            self.slots,
            self.ladder.stages,
            self.time_score,
            self.bill,
            self.begin,
            self.breaks,
            self.hold,
            self.weights.egress_s,
            np.array([room.index[span.region] for span in state], dtype=np.int64),
            np.array([span.layers * per_layer for span in state], dtype=np.float64),
            room.link_bps,
            self.access_bps,
            network.one_way_usd_per_gb,
        )
        if not math.isfinite(score):
            return None
        return Sketch(score, self.ladder, ((self._pool(region), int(self.ladder.stages[rung])),))

    def _chains(self, rungs: slice, slots: Integers, widths: Integers, bound: float) -> Iterator[Sketch]:
        """Of these rungs, the best chains that could be built on so many slots, each better than all before."""
        work, room, network = self.origin.work, self.board.room, self.board.network
        ladder, training = self.ladder, work.spec.training
        # With a window that fits, the first micro-batch alone waits for a cut, there and back; with a strict one, all.
        waits = 2 if training.schedule.looks_for_window else training.micro_batches
        stages, bill = ladder.stages[rungs], np.ascontiguousarray(self.bill[:, rungs])
        found = compiled(chain_kernel.each_better, chain_kernel.run, chain_kernel.ascending)(
            slots,
            stages,
            self.time_score[rungs],
            bill,
            self.begin,
            np.ascontiguousarray(self.breaks[:, rungs]),
            ladder.need_bps[rungs],
            widths,
            work.demand.boundary_bits,
            work.steps * waits * self.hold[rungs],
            self.weights.egress_s * (work.cut_bytes_per_step * work.steps) / BYTES_PER_GB,
            network.latency_s,
            network.egress_usd_per_gb,
            room.link_bps,
            self.access_bps,
            work.demand.max_regions,
            self.board.config.search_nodes,
            bound,
        )
        for score, rung, width, path in zip(*(each.tolist() for each in found), strict=True):
            chain = [region for region in path if region >= 0]
            shares = self._filled(chain, bill[:, rung] / stages[rung], int(stages[rung]), slots)
            yield Sketch(score, ladder, shares, width)

    def _filled(self, path: Sequence[int], rate: Floats, stages: int, slots: Integers) -> tuple[Share, ...]:
        """One stage in each region of the chain, the rest where it is cheapest."""
        given = dict.fromkeys(path, 1)
        left = stages - len(given)
        for region in sorted(given, key=lambda each: (float(rate[each]), each)):
            more = min(left, int(slots[region]) - 1)
            given[region] += more
            left -= more
        return tuple((self._pool(region), count) for region, count in given.items())

    def _pool(self, region: int) -> tuple[str, str]:
        return (self.board.residual.topology.regions[region], self.ladder.gpu_type)


def _worth(usd: Floats, dollar_s: float) -> Floats:
    """Dollars in seconds; infinite where they are."""
    return np.multiply(usd, dollar_s, out=usd.copy(), where=np.isfinite(usd))
