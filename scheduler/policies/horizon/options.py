"""Where a job could stand, and what each place is worth: its time, what it takes from others, and its bill, in seconds.

    score = T·(1 + μ·G) + λ·electricity + λ'·egress

with T from now until the job ends there (stopping, restart and travelling state included), G its GPUs, μ what others
lose by a GPU-second, λ what a dollar is worth (`weights.py`). All numbers of stages in all regions are scored at once;
chains are searched where more stages than one region has may pay.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scheduler.allocator import Share
from scheduler.cost import (
    BYTES_PER_GB,
    SECONDS_PER_HOUR,
    egress_bytes_per_iteration,
)
from scheduler.job import Schedule
from scheduler.policies.horizon import chain_kernel
from scheduler.policies.horizon.board import Board
from scheduler.policies.horizon.ladder import Ladder, ladders_of
from scheduler.policies.horizon.work import Seat, Work, seat_of
from scheduler.profile import boundary_bytes
from scheduler.restart import granted_transfers, state_bytes, state_of

Floats = NDArray[np.float64]
_WORTH_A_CHAIN = 0.999
"""A chain is looked at where it could be so much better than the best found."""


@dataclass(frozen=True, slots=True)
class Option:
    """A seat for a job, its score, and what the score is made of."""

    score_s: float
    seat: Seat
    run_s: float
    """From now until the job would end there."""
    restart_s: float
    """The part of it before the first step."""


def score_of(work: Work, seat: Seat, board: Board) -> float:
    """The score of one seat, from now to the end of the job: by the timeline, its grants and its transfers."""
    weights, run_s = board.weights, board.remaining_s(work, seat)
    electricity = board.prices.usd_per_hour(seat.draw_kw, run_s) * run_s / SECONDS_PER_HOUR
    egress = work.steps * seat.egress_usd_per_step + (
        seat.egress_usd_once if seat.ready_s > board.now_s else 0.0
    )
    return (
        run_s * (1 + weights.gpu_s * seat.placement.gpus)
        + weights.electricity_s * electricity
        + weights.egress_s * egress
    )


def best_option(work: Work, board: Board, seat: Seat | None, most_slots: int | None = None) -> Option | None:
    """The best seat on what is free now for a job that leaves `seat` (None: it waits); None if it fits nowhere."""
    best: Option | None = None
    for ladder in ladders_of(work.demand, board.cluster):
        found = _Search(work, board, seat, ladder, most_slots).best()
        if found is not None and (best is None or found.score_s < best.score_s):
            best = found
    return best


class _Search:
    """One search over the rungs of one ladder."""

    def __init__(
        self, work: Work, board: Board, seat: Seat | None, ladder: Ladder, most_slots: int | None
    ) -> None:
        self.work, self.board, self.ladder = work, board, ladder
        self.stopping_s = 0.0 if seat is None else board.stopping_s(work, seat)
        stepped = seat is not None and seat.ready_s <= board.now_s
        self.state = state_of(work.spec, seat.placement) if seat is not None and stepped else work.state
        topology = board.residual.topology
        self.regions = topology.regions
        allowed, size = set(work.demand.regions), work.demand.gpus_per_stage
        free = board.residual.free_gpus
        self.slots = np.array(
            [free((region, ladder.gpu_type)) // size if region in allowed else 0 for region in self.regions],
            dtype=np.int64,
        )
        if most_slots is not None:
            self.slots = np.minimum(self.slots, most_slots)
        base = work.steps * ladder.iteration_s + self.stopping_s
        self.restart = np.zeros_like(base)
        if work.has_state or stepped:
            self.restart = board.cluster.restart.fixed_s + ladder.storage_s
        self.run_s = base + self.restart
        weights = board.weights
        self.hold = 1 + weights.gpu_s * ladder.gpus
        self.time_score = self.run_s * self.hold
        # [region, rung]: what the electricity of all stages in that region is worth
        self.bill = (
            board.prices.over(self.run_s)
            * (ladder.draw_kw * self.run_s)
            * (weights.electricity_s / SECONDS_PER_HOUR)
        )

    def best(self) -> Option | None:
        alone = self._alone()
        bound = alone.score_s if alone is not None else math.inf
        if self.work.demand.max_regions > 1:
            for chained in self._chains(bound):
                if alone is None or chained.score_s < alone.score_s:
                    alone = chained
        return alone

    def _alone(self) -> Option | None:
        """The best rung in the best region; ties go to the cheaper, then to the first by name."""
        fits = self.slots[:, None] >= self.ladder.stages[None, :]
        if not fits.any():
            return None
        score = np.where(fits, self.time_score[None, :] + self.bill, np.inf)
        if self.state:
            score = score + self._travel_score()
        for _ in range(3):
            at = int(np.argmin(score))
            region, rung = divmod(at, self.ladder.stages.size)
            if not math.isfinite(score[region, rung]):
                return None
            option = self._option(((self._pool(region), int(self.ladder.stages[rung])),))
            if option is not None:
                return option
            score[region] = np.inf  # its state cannot get there now
        return None

    def _travel_score(self) -> Floats:
        """[region, rung]: what it is worth that the state of the job has to go there, roughly."""
        board, free = self.board, self.board.free
        index = {region: number for number, region in enumerate(self.regions)}
        layers = sum(span.layers for span in self.state)
        volume = state_bytes(self.work.spec)
        score = np.zeros((len(self.regions), self.ladder.stages.size))
        links = board.cluster.links
        for number, region in enumerate(self.regions):
            if not self.slots[number]:
                continue
            longest, usd = 0.0, 0.0
            for span in self.state:
                if span.region == region:
                    continue
                share = volume * span.layers / layers
                width = min(
                    free.pair_bps[index[span.region], number],
                    free.access_bps[index[span.region]],
                    free.access_bps[number],
                )
                if width <= 0 or (span.region, region) not in links:
                    longest = math.inf
                    break
                longest = max(longest, share * 8 / width)
                usd += share / BYTES_PER_GB * links[span.region, region].egress_usd_per_gb
            score[number] = longest * self.hold + board.weights.egress_s * usd
        return score

    def _chains(self, bound: float) -> list[Option]:
        """The best chain of each rung for which one could be better than what was found."""
        ladder, board, free, network = self.ladder, self.board, self.board.free, self.board.network
        usable = self.slots > 0
        if int(usable.sum()) < 2:
            return []
        total = int(np.sort(self.slots)[::-1][: self.work.demand.max_regions].sum())
        order = np.argsort(self.time_score + self.bill[usable].min(axis=0), kind="stable")
        found: list[Option] = []
        spec = self.work.spec
        volume = (
            egress_bytes_per_iteration(boundary_bytes(spec), spec.training.micro_batches) * self.work.steps
        )
        pair = np.minimum(free.pair_bps, np.minimum(free.access_bps[:, None], free.access_bps[None, :]))
        for rung in order.tolist():
            stages = int(ladder.stages[rung])
            if stages > total or stages < 2:
                continue
            least = float(self.time_score[rung] + self.bill[usable, rung].min())
            if least >= bound * _WORTH_A_CHAIN:
                break
            need = ladder.candidate.stage_counts.need_bps[_position(ladder, rung)]
            iterations = self.work.steps * (
                2.0 if spec.training.schedule is Schedule.SLACK_1F1B else float(spec.training.micro_batches)
            )
            delay = network.latency_s + self.work.demand.boundary_bits / need
            cut = np.where(
                pair >= need,
                iterations * delay * self.hold[rung]
                + board.weights.egress_s * volume / BYTES_PER_GB * network.egress_usd_per_gb,
                np.inf,
            )
            np.fill_diagonal(cut, np.inf)
            rate = self.bill[:, rung] / stages
            nodes = chain_kernel.compiled()(
                self.slots,
                rate,
                cut,
                np.argsort(cut, axis=1, kind="stable"),
                free.access_bps >= 2 * need,
                -1,
                stages,
                self.work.demand.max_regions,
                board.config.search_nodes,
                bound - float(self.time_score[rung]),
            )
            path = nodes[1]
            if path.size < 2:
                continue
            shares = self._filled(path, rate, stages)
            option = self._option(shares)
            if option is not None:
                found.append(option)
                bound = min(bound, option.score_s)
        return found

    def _filled(self, path: NDArray[np.int64], rate: Floats, stages: int) -> tuple[Share, ...]:
        """One stage in each region of the chain, the rest where it is cheapest."""
        given = {int(region): 1 for region in path}
        left = stages - len(given)
        for region in sorted(given, key=lambda each: (float(rate[each]), each)):
            more = min(left, int(self.slots[region]) - 1)
            given[region] += more
            left -= more
        return tuple((self._pool(region), count) for region, count in given.items())

    def _pool(self, region: int) -> tuple[str, str]:
        return (self.regions[region], self.ladder.gpu_type)

    def _option(self, shares: Sequence[Share]) -> Option | None:
        """The seat with these stages, scored in full; None if it does not fit or its state cannot get there."""
        board, work = self.board, self.work
        evaluation = board.world.place(work.demand, shares, lambda crossings, need: [need] * len(crossings))
        if evaluation is None:
            return None
        transfers = granted_transfers(work.spec, self.state, evaluation.placement, board.residual)
        if transfers is None:
            return None
        before_s = self.stopping_s
        if self.restart.any():
            travel_s = max((each.duration_s for each in transfers), default=0.0)
            at = int(np.searchsorted(self.ladder.stages, evaluation.placement.stages))
            before_s += float(self.restart[at]) + travel_s
        seat = seat_of(work.spec, board.cluster, evaluation, board.now_s + before_s, transfers)
        return Option(score_of(work, seat, board), seat, board.remaining_s(work, seat), before_s)


def _position(ladder: Ladder, rung: int) -> int:
    """Position of a rung among the stage counts of its candidate."""
    return ladder.candidate.stage_counts.index(int(ladder.stages[rung]))
