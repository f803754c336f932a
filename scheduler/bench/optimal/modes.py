"""Every way in which a job of a small decision may be run: numbers of stages × chains × stages in each region.

A mode is worth what horizon's own score says of it, on a cluster that is empty beside it. Chains are all ordered ones,
with all ways to share the stages out; cuts are granted what keeps up, as horizon grants it. What certainly scores above
a cap is not built: an iteration over regions takes no less than that of as many stages in one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise, permutations

import numpy as np

from scheduler.cluster import PoolKey
from scheduler.cost import BYTES_PER_GB, SECONDS_PER_HOUR, egress_bytes_per_iteration
from scheduler.policies.horizon.board import Board
from scheduler.policies.horizon.ladder import Ladder, ladders_of
from scheduler.policies.horizon.options import option_on
from scheduler.policies.horizon.scoring import score_of
from scheduler.policies.horizon.timetable import Mode
from scheduler.policies.horizon.work import Seat, Work
from scheduler.profile import boundary_bytes

Split = tuple[tuple[PoolKey, int], ...]


def mode_of(work: Work, seat: Seat, board: Board) -> Mode:
    """What a job's seat is on a board."""
    return Mode.of(score_of(work, seat, board), board.remaining_s(work, seat), seat)


class Modes:
    """The modes of one job, the best first; built as far as they are asked for."""

    def __init__(self, work: Work, empty: Board, seat: Seat | None) -> None:
        """`empty` has nothing on it, and the weights that the job has on the board of the decision; `seat` is what it
        leaves (None: it waits)."""
        self._work, self._empty, self._seat = work, empty, seat
        bounded = [
            (self._at_least_s(ladder, rung, split), order, ladder, split)
            for ladder in ladders_of(work.demand, empty.cluster)
            for rung, stages in enumerate(ladder.stages.tolist())
            for order, split in enumerate(self._splits(ladder, stages))
        ]
        self._bounded = sorted(bounded, key=lambda each: (each[0], int(each[2].stages[0]), each[1]))
        self._built: dict[int, Mode | None] = {}

    def least_s(self) -> float:
        """The lowest score of all; infinite if there is none."""
        least = math.inf
        for number, (bound_s, *_) in enumerate(self._bounded):
            if bound_s >= least:
                break
            mode = self._mode(number)
            if mode is not None:
                least = min(least, mode.score_s)
        return least

    def up_to(self, cap_s: float) -> list[Mode]:
        """All with a score of at most so much that no other beats."""
        found: list[Mode] = []
        built = (self._mode(number) for number, (bound_s, *_) in enumerate(self._bounded) if bound_s <= cap_s)
        for mode in sorted((each for each in built if each is not None), key=lambda each: each.score_s):
            if mode.score_s <= cap_s and not any(other.beats(mode) for other in found):
                found.append(mode)
        return found

    def _mode(self, number: int) -> Mode | None:
        if number not in self._built:
            _, _, _, split = self._bounded[number]
            self._built[number] = self._build(split)
        return self._built[number]

    def _build(self, split: Split) -> Mode | None:
        empty, work = self._empty, self._work
        evaluation = empty.world.place(work.demand, split, lambda crossings, need: [need] * len(crossings))
        if evaluation is None or not empty.room.holds(evaluation.placement, ()):
            return None
        option = option_on(work, empty, self._seat, evaluation)
        return None if option is None else Mode.of(option.score_s, option.run_s, option.seat)

    def _splits(self, ladder: Ladder, stages: int) -> Iterator[Split]:
        """Every chain with every way to share the stages out."""
        demand, room = self._work.demand, self._empty.room
        slots = {
            region: int(room.gpus[ladder.gpu_type][room.index[region]]) // demand.gpus_per_stage
            for region in demand.regions
        }
        usable = [region for region in demand.regions if slots[region]]
        for length in range(1, min(demand.max_regions, stages, len(usable)) + 1):
            for chain in permutations(usable, length):
                if chain[0] in demand.begins and self._linked(chain):
                    for counts in _shared_out(stages, [slots[region] for region in chain]):
                        pools = [(region, ladder.gpu_type) for region in chain]
                        yield tuple(zip(pools, counts, strict=True))

    def _linked(self, chain: Sequence[str]) -> bool:
        index, latency_s = self._empty.room.index, self._empty.network.latency_s
        return all(math.isfinite(latency_s[index[a], index[b]]) for a, b in pairwise(chain))

    def _at_least_s(self, ladder: Ladder, rung: int, split: Split) -> float:
        """No more than the score of the mode: without the delay of its cuts, and without restart."""
        work, empty, index = self._work, self._empty, self._empty.room.index
        weights = empty.weights_of(work)
        run_s = work.steps * float(ladder.iteration_s[rung])
        price = empty.prices.over(empty.now_s, np.array([run_s]), np.array([-np.inf]))[:, 0]
        kilowatts = float(ladder.draw_kw[rung]) / int(ladder.stages[rung])
        electricity = math.fsum(kilowatts * count * price[index[region]] for (region, _), count in split)
        egress = math.fsum(
            empty.network.egress_usd_per_gb[index[a], index[b]]
            for ((a, _), _), ((b, _), _) in pairwise(split)
        )
        sent = work.steps * egress_bytes_per_iteration(
            boundary_bytes(work.spec), work.spec.training.micro_batches
        )
        return (
            run_s * (1 + weights.gpu_s * int(ladder.gpus[rung]))
            + weights.electricity_s * electricity / SECONDS_PER_HOUR
            + weights.egress_s * egress * sent / BYTES_PER_GB
        )


def _shared_out(stages: int, slots: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """All ways to put so many stages into so many places, at least one and at most `slots` in each."""
    if len(slots) == 1:
        if 1 <= stages <= slots[0]:
            yield (stages,)
        return
    for first in range(1, min(slots[0], stages - len(slots) + 1) + 1):
        for rest in _shared_out(stages - first, slots[1:]):
            yield (first, *rest)
