"""GPUs by marginal speed-up over all active jobs, the cost of restarts counted: the kind of Pollux and Sia.

Every job that may change is given a number of stages anew at each decision. After Sia (SOSP 2023, section 3.4) a number
is worth −(r·s)^p, and −λ no GPU at all, with p = −0.5 and λ = 1.1: s is the speed over that of the least stages, and
r = T / (T + S) for a job that would have to restart, T how long it has stood where it stands, S what the restart takes
(as the reallocation factor of Pollux, OSDI 2021; 1 for a job that waits). Where Sia solves an integer programme, steps
are taken here in the order of what they are worth for a GPU, along the concave hull of each job's numbers: the greedy
answer of the multiple-choice knapsack (P. Sinha and A. Zoltners, 1979). A job that runs may shrink, but keeps a place:
pushing it out costs its state a way over a WAN that neither of the two papers knows.

Prices are not looked at. A job may stretch over a chain of regions whose links keep up, as BACE-Pipe's do, for large
models fit in no single region at all; and of regions that would do, those with the least room are filled first.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from scheduler.allocator import Rate, by_price
from scheduler.options import Demand
from scheduler.policies import bace
from scheduler.policies.elastic import is_settled, option_of
from scheduler.policies.horizon.board import Board
from scheduler.policies.horizon.ladder import Ladder, ladders_of
from scheduler.policies.horizon.work import Option, Seat, Work
from scheduler.policies.narrowed import at_most
from scheduler.policies.proposal import Proposal
from scheduler.policies.world import World

_POWER: Final = -0.5
_WITHOUT: Final = 1.1
_TIGHTEST: Final = bace.Division(by_price, "where the least room is first")

Target = tuple[str, int]
"""(GPU type, stages)."""


def place(demand: Demand, world: World) -> Proposal | None:
    """As many stages as there can be, on GPUs of the first type that has room."""
    targets = (
        (each.stage_counts.gpu_types[0], each.most)
        for each in demand.candidates
        if len(each.stage_counts.gpu_types) == 1
    )
    return next((found for target in targets if (found := _placed(demand, world, target))), None)


def act(board: Board) -> None:
    """Shares all GPUs out anew: first those who are to have fewer shrink, then others start, then the rest grow."""
    settled = [
        work
        for job_id, work in sorted(board.works.items())
        if job_id in board.seats and is_settled(work, board.seats[job_id], board)
    ]
    waiting = [work for job_id, work in sorted(board.works.items()) if job_id not in board.seats]
    targets = _targets(board, [*settled, *waiting])
    for work in settled:
        target, (gpu_type, stages) = targets.get(work.job_id), _standing(board.seats[work.job_id])
        if target is None or target[0] != gpu_type or target[1] < stages:
            _shrink(board, work, target)
    starting = [
        work for job_id, work in board.works.items() if job_id in targets and job_id not in board.seats
    ]
    # The largest first, while there is room in one piece.
    for work in sorted(
        starting, key=lambda each: (-targets[each.job_id][1] * each.demand.gpus_per_stage, each.job_id)
    ):
        option = _option(board, work, targets[work.job_id], None)
        if option is not None:
            board.place(work.job_id, option.seat)
    for work in settled:
        seat = board.seats.get(work.job_id)
        if seat is work.seat and seat is not None and targets[work.job_id] != _standing(seat):
            _grow(board, work, seat, targets[work.job_id])


def _shrink(board: Board, work: Work, target: Target | None) -> None:
    """Puts a job on fewer stages or other GPUs, or lets it wait."""
    seat = board.evict(work.job_id)
    option = None if target is None else _option(board, work, target, seat)
    if option is not None:
        board.place(work.job_id, option.seat)


def _grow(board: Board, work: Work, seat: Seat, target: Target) -> None:
    """Puts a job on more stages, if it ends sooner there."""
    left_s = board.remaining_s(work, board.release(work.job_id))
    option = _option(board, work, target, seat)
    better = option is not None and option.run_s < left_s
    board.place(work.job_id, option.seat if option is not None and better else seat)


def _option(board: Board, work: Work, target: Target, seat: Seat | None) -> Option | None:
    """Room for so many stages at most where the job stands or its state lies, or anywhere if it ends sooner there."""
    spans = work.state if seat is None else seat.placement.segments
    home = frozenset(each.region for each in spans)
    options = [
        option_of(work, board, _placed(work.demand, board.world, target, regions), seat)
        for regions in ((home, None) if home else (None,))
    ]
    return min((each for each in options if each is not None), key=lambda each: each.run_s, default=None)


def _slowest_s(board: Board, work: Work) -> float:
    """An iteration on the least stages, of the slowest GPU type."""
    return max(float(each.iteration_s[0]) for each in ladders_of(work.demand, board.cluster))


def _placed(
    demand: Demand, world: World, target: Target, regions: frozenset[str] | None = None
) -> Proposal | None:
    return bace.place_divided(at_most(demand, *target, regions), _tightest_first(world), _TIGHTEST)


def _tightest_first(world: World) -> World:
    """The world where a GPU counts as the cheaper the fewer are free beside it."""
    free = world.residual.free_gpus
    return replace(world, rates={pool: Rate(unknown=False, usd_per_hour=free(pool)) for pool in world.rates})


def _standing(seat: Seat) -> Target:
    return seat.placement.segments[0].gpu_type, seat.placement.stages


@dataclass(frozen=True, slots=True, eq=False)
class _Climb:
    """What numbers of stages on one GPU type are worth to a job, ascending. The first stands for no GPU at all."""

    job_id: str
    gpu_type: str
    stages: list[int]
    gpus: list[int]
    values: list[float]
    stands: bool
    """Whether the job stands on GPUs of this type."""

    @classmethod
    def of(cls, board: Board, work: Work, ladder: Ladder) -> _Climb:
        """The rungs of a ladder, and where the job stands."""
        slowest_s = _slowest_s(board, work)
        iterations_s = dict(zip(ladder.stages.tolist(), ladder.iteration_s.tolist(), strict=True))
        seat = board.seats.get(work.job_id)
        stands = None
        if seat is not None and _standing(seat)[0] == ladder.gpu_type:
            stands = seat.placement.stages
            iterations_s[stands] = seat.iteration_s
        stages, values = [0], [-_WITHOUT]
        for count in sorted(iterations_s):
            speed = slowest_s / iterations_s[count]
            if seat is not None and count != stands:
                speed *= _restarting(board, work, seat, ladder, count)
            stages.append(count)
            values.append(-(speed**_POWER) if speed > 0 else -math.inf)
        gpus = [count * work.demand.gpus_per_stage for count in stages]
        return cls(work.job_id, ladder.gpu_type, stages, gpus, values, stands is not None)

    def hull(self) -> Iterator[tuple[float, int]]:
        """(value gained for each GPU, position) along the concave hull, from no GPU on."""
        at = 0
        while at + 1 < len(self.values):
            gain, following = max(
                ((self.values[each] - self.values[at]) / (self.gpus[each] - self.gpus[at]), each)
                for each in range(at + 1, len(self.values))
            )
            if gain <= 0:
                return
            yield gain, following
            at = following

    def best_within(self, at: int, gpus: int) -> int:
        """The best position that so many GPUs more allow; `at` where none is better."""
        within = (each for each in range(at, len(self.values)) if self.gpus[each] - self.gpus[at] <= gpus)
        return max(within, key=lambda each: (self.values[each], -each))


def _restarting(board: Board, work: Work, seat: Seat, ladder: Ladder, stages: int) -> float:
    """r = T / (T + S) of a job that would leave its seat."""
    stood_s = max(0.0, board.now_s - work.waits_since_s)
    restart_s = board.stopping_s(seat) + board.cluster.restart.fixed_s + ladder.storage_of(stages)
    return stood_s / (stood_s + restart_s) if stood_s > 0 else 0.0


def _targets(board: Board, active: Sequence[Work]) -> dict[str, Target]:
    """How many stages every active job is to have; without an entry, none."""
    free = Counter({name: int(each.sum()) for name, each in board.room.gpus.items()})
    for work in active:
        seat = board.seats.get(work.job_id)
        for segment in seat.placement.segments if seat is not None else ():
            free[segment.gpu_type] += segment.gpus
    climbs = [
        _Climb.of(board, work, ladder) for work in active for ladder in ladders_of(work.demand, board.cluster)
    ]
    steps = [
        (climb.stands and number == 0, gain, climb, position)
        for climb in climbs
        for number, (gain, position) in enumerate(climb.hull())
    ]
    # Who stands somewhere takes the first step first: it may shrink, but is not pushed out.
    steps.sort(key=lambda each: (not each[0], -each[1], each[2].job_id, each[2].gpu_type, each[3]))
    taken: dict[str, tuple[_Climb, int]] = {}
    for _, _, climb, position in steps:
        other, at = taken.get(climb.job_id, (climb, 0))
        if other is not climb:
            continue
        if climb.gpus[position] - climb.gpus[at] > free[climb.gpu_type]:
            position = climb.best_within(at, free[climb.gpu_type])
        if position > at:
            free[climb.gpu_type] -= climb.gpus[position] - climb.gpus[at]
            taken[climb.job_id] = (climb, position)
    return {job_id: (climb.gpu_type, climb.stages[position]) for job_id, (climb, position) in taken.items()}
