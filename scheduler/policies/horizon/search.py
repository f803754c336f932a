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
from scheduler.cost import BYTES_PER_GB, SECONDS_PER_HOUR, egress_bytes_per_iteration
from scheduler.pipeline.kernel import compiled
from scheduler.policies.horizon import chain_kernel
from scheduler.policies.horizon.board import Board
from scheduler.policies.horizon.ground import Flags, Floats, Integers
from scheduler.policies.horizon.ladder import Ladder
from scheduler.policies.horizon.scoring import least_price
from scheduler.policies.horizon.work import UNLIMITED, Seat, Work
from scheduler.profile import boundary_bytes
from scheduler.restart import state_bytes, state_of
from scheduler.snapshot import StateSpan

_SEVERAL: Final = 4
"""Regions, the best first, in which a number of stages is offered to a joint choice."""
_FEW_REGIONS: Final = 4
"""Up to so many, every set of them is offered as a chain."""
_APART: Final = 1.1
"""Ratio of the numbers of stages that are offered to it."""
_NO_WIDTH: Final = 1e-3
"""Bits per second where there are none: state does not get there in any time that matters."""
_WIDER: Final = (1, 2, 4)
"""What a cut may be granted of what keeps up, where a schedule pays for its delay on every micro-batch."""


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
        return cls(work, board.stopping_s(work, seat), True, state_of(work.spec, seat.placement))


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
        self.begin = board.begin_usd(work)
        self.begin[np.isfinite(self.begin)] *= weights.egress_s
        self.hold: Floats = np.asarray(1 + weights.gpu_s * ladder.gpus)
        self.time_score = self.run_s * self.hold
        # [region, rung]: what the electricity, or the rent, of all stages in that region is worth.
        least = least_price(self.hold, weights.electricity_s, ladder.draw_kw)
        self.bill = weights.electricity_s * self._holding_usd(self.run_s, least)
        self.breaks = self._breaks()

    def _holding_usd(self, run_s: Floats, least: Floats) -> Floats:
        """[region, rung]: what it costs to hold all stages in that region, prices counting down to `least`."""
        ladder, board = self.ladder, self.board
        prices, rent = board.prices, board.prices.rents[ladder.gpu_type]
        electricity = prices.over(board.now_s, run_s, least) * ladder.draw_kw / SECONDS_PER_HOUR
        return np.where(
            np.isnan(rent)[:, None],
            electricity,
            np.nan_to_num(rent)[:, None] * ladder.gpus * run_s / SECONDS_PER_HOUR,
        )

    def _breaks(self) -> Flags | None:
        """[region, rung]: whether all stages in that region would break the job's deadline or budget; None if nothing
        does. What its state may still have to travel is not counted."""
        work, board = self.origin.work, self.board
        if work.limits is UNLIMITED:
            return None
        run_s = work.declared * self.ladder.iteration_s + self.before_s
        usd = self._holding_usd(run_s, np.full_like(run_s, -np.inf)) + board.begin_usd(work)[:, None]
        return np.asarray((board.now_s + run_s > work.limits.until_s) | (usd > work.limits.left_usd))

    def candidates(self, bound: float) -> Iterator[Sketch]:
        """The best of one region, and chains that could be better; all of them below the bound."""
        largest = int(self.slots.max(initial=0))
        if largest >= self.ladder.stages[0]:
            alone = self._alone()
            if alone is not None and alone.score_s < bound:
                bound = alone.score_s
                yield alone
        if self.origin.work.demand.max_regions > 1 and largest:
            yield from self._chains(bound)

    def several(self) -> Iterator[Sketch]:
        """For numbers of stages a tenth apart, and those that fill a region: the best regions and the best chains."""
        pair, access = self.board.room.pair_bps(), self.board.room.access_bps()
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
                yield from self._several_chains(rung, pair, access)

    def _several_chains(self, rung: int, pair: Floats, access: Floats) -> Iterator[Sketch]:
        """The best chain; of few regions, the best over every set of them."""
        slots, without = self.slots, list[tuple[int, ...]]([()])
        usable = np.flatnonzero(slots).tolist()
        if len(usable) <= _FEW_REGIONS:
            without = [left for count in range(len(usable) - 1) for left in combinations(usable, count)]
        for left in without:
            self.slots = slots.copy()
            self.slots[list(left)] = 0
            chain = self._chain(rung, 1, pair, access, math.inf)
            if chain is not None:
                yield chain
        self.slots = slots

    def _alone(self) -> Sketch | None:
        """The best rung in the best region."""
        stages = self.ladder.stages
        score = np.where(self.slots[:, None] >= stages[None, :], self.time_score[None, :] + self.bill, np.inf)
        score = score + self.begin[:, None]
        if self.breaks is not None:
            score[self.breaks] = np.inf
        if self.origin.state:
            score = score + self._travel_score()
        region, rung = divmod(int(np.argmin(score)), stages.size)
        if not math.isfinite(score[region, rung]):
            return None
        share = (self._pool(region), int(stages[rung]))
        return Sketch(float(score[region, rung]), self.ladder, (share,))

    def _travel_score(self) -> Floats:
        """[region, rung]: what it is worth that the state of the job has to go to a region, roughly."""
        room, network = self.board.room, self.board.network
        state = self.origin.state
        per_layer = state_bytes(self.origin.work.spec) / sum(span.layers for span in state)
        access = room.access_bps()
        longest, usd = np.zeros(access.size), np.zeros(access.size)
        for span in state:
            src, sent = room.index[span.region], span.layers * per_layer
            width = np.maximum(np.minimum(room.link_bps[src], np.minimum(access[src], access)), _NO_WIDTH)
            width[src] = np.inf
            longest = np.maximum(longest, sent * 8 / width)
            usd += sent / BYTES_PER_GB * network.one_way_usd_per_gb[src]
        return np.asarray(longest[:, None] * self.hold[None, :] + self.weights.egress_s * usd[:, None])

    def _chains(self, bound: float) -> Iterator[Sketch]:
        """The best chain of each rung for which one could be better than `bound`."""
        ladder, slots, demand = self.ladder, self.slots, self.origin.work.demand
        usable = slots > 0
        if np.count_nonzero(usable) < 2:
            return
        total = int(np.sort(slots)[::-1][: demand.max_regions].sum())
        least = self.time_score + self.bill[usable].min(axis=0) + self.begin[usable].min()
        pair, access = self.board.room.pair_bps(), self.board.room.access_bps()
        spec = self.origin.work.spec
        slack = spec.training.schedule.looks_for_window
        for rung in np.argsort(least, kind="stable").tolist():
            stages = int(ladder.stages[rung])
            if not 2 <= stages <= total or (self.breaks is not None and self.breaks[usable, rung].all()):
                continue
            if least[rung] >= bound:
                break
            for wider in (1,) if slack else _WIDER:
                found = self._chain(rung, wider, pair, access, bound)
                if found is not None:
                    bound = found.score_s
                    yield found

    def _chain(self, rung: int, wider: int, pair: Floats, access: Floats, bound: float) -> Sketch | None:
        """The best chain of so many stages whose cuts are granted so much; None if none is below the bound."""
        work, network = self.origin.work, self.board.network
        training = work.spec.training
        stages = int(self.ladder.stages[rung])
        need = self.ladder.need_bps(rung) * wider
        # With a window that fits, the first micro-batch alone waits for a cut, there and back; with a strict one, all.
        waits = 2 if training.schedule.looks_for_window else training.micro_batches
        volume = egress_bytes_per_iteration(boundary_bytes(work.spec), training.micro_batches) * work.steps
        rate = self.bill[:, rung] / stages
        cost, path, _ = compiled(chain_kernel.run)(
            self.slots,
            rate,
            network.latency_s,
            network.egress_usd_per_gb,
            pair,
            access,
            self.begin,
            float(need),
            work.demand.boundary_bits / need,
            work.steps * waits * float(self.hold[rung]),
            self.weights.egress_s * volume / BYTES_PER_GB,
            stages,
            work.demand.max_regions,
            self.board.config.search_nodes,
            bound - float(self.time_score[rung]),
        )
        if path.size < 2:
            return None
        shares = self._filled(path.tolist(), rate, stages)
        return Sketch(float(self.time_score[rung]) + cost, self.ladder, shares, wider)

    def _filled(self, path: Sequence[int], rate: Floats, stages: int) -> tuple[Share, ...]:
        """One stage in each region of the chain, the rest where it is cheapest."""
        given = dict.fromkeys(path, 1)
        left = stages - len(given)
        for region in sorted(given, key=lambda each: (float(rate[each]), each)):
            more = min(left, int(self.slots[region]) - 1)
            given[region] += more
            left -= more
        return tuple((self._pool(region), count) for region, count in given.items())

    def _pool(self, region: int) -> tuple[str, str]:
        return (self.board.residual.topology.regions[region], self.ladder.gpu_type)
