"""How far a decision of horizon is from the best that could have been decided, by its own score.

A decision is worth what it leads to: the score of every seat that it gives or leaves, and, of whoever waits, how long
it then waits and the score of what it gets. What comes after is planned at its best for both sides, by the exact
search: so the gap is that of the one decision. Jobs that wait are asked again when the first job ends that has a seat.

No plan counts that takes more completion time than BACE-Pipe's decisions do, or than the decided one itself where that
is slower: horizon holds itself to that. The exact search has every way to run a job that horizon could give it, those
with the bandwidth that keeps up, and knows no more of the jobs than horizon does.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from scheduler.bench.optimal.modes import Modes, mode_of
from scheduler.errors import InvalidValueError
from scheduler.evaluate import evaluate
from scheduler.objective import Objective
from scheduler.plan import Move, Plan, Start
from scheduler.policies import POLICIES
from scheduler.policies.horizon.board import Board
from scheduler.policies.horizon.config import HorizonConfig
from scheduler.policies.horizon.options import best_option
from scheduler.policies.horizon.policy import HorizonPolicy
from scheduler.policies.horizon.portfolio import as_bace_s
from scheduler.policies.horizon.queue import ends_s, shortest_first
from scheduler.policies.horizon.timetable import Mode, Task, Timetable, best_timetable
from scheduler.policies.horizon.work import Seat, Work, seat_of
from scheduler.policies.queueing import QueueRound
from scheduler.restart import restart_s
from scheduler.snapshot import Snapshot

LIMIT: Final = 60.0
"""Deterministic time of one solve."""
_FEW_MODES: Final = 8


@dataclass(frozen=True, slots=True)
class Gap:
    """The best plan and the decided one, in seconds of score."""

    best_s: float
    decided_s: float

    @property
    def part(self) -> float:
        """By how much the decided one is worse."""
        return self.decided_s / self.best_s - 1


def gaps(
    snapshot: Snapshot, configs: Mapping[str, HorizonConfig], *, crowding: bool = True
) -> dict[str, Gap]:
    """The gap of what horizon decides under each configuration; without `crowding` a seat is worth its time and its
    bill alone.

    Raises InvalidValueError if the best plan cannot be proven.
    """
    measure = _Measure(_board(snapshot), crowding)
    plans = {
        name: _policy(config).decide(snapshot, strict=False, seed=0, objective=Objective())
        for name, config in configs.items()
    }
    taken = {name: measure.seats(plan) for name, plan in plans.items()}
    return {name: measure.gap(seats) for name, seats in taken.items()}


def _policy(config: HorizonConfig) -> HorizonPolicy:
    policy = POLICIES["horizon"]
    if not isinstance(policy, HorizonPolicy):
        raise InvalidValueError("policy", policy.name, "horizon")
    return replace(policy, config=config)


def _board(snapshot: Snapshot) -> Board:
    """What horizon looks at, before any move; jobs that can never run are not on it."""
    policy = _policy(HorizonConfig())
    round_ = QueueRound.of(policy.verdicts, snapshot, strict=False, seed=0)
    board, _ = policy.board(snapshot, 0, Objective(), round_)
    return board


class _Measure:
    """What plans for the jobs of a board are worth."""

    def __init__(self, board: Board, crowding: bool) -> None:
        self._board = board
        empty = board.emptied()
        self._bace_s = as_bace_s(board)
        self._lens = {
            job_id: (weights if crowding else replace(weights, gpu_s=0.0))
            for job_id, work in board.works.items()
            for weights in (board.weights_of(work),)
        }
        self._stays = {job_id: self._mode(job_id, seat) for job_id, seat in board.seats.items()}
        self._modes = {
            job_id: Modes(work, replace(empty, lens=self._lens[job_id]), board.seats.get(job_id))
            for job_id, work in board.works.items()
            if work.movable or job_id not in board.seats
        }
        self._least_s = {
            job_id: min(
                self._modes[job_id].least_s() if job_id in self._modes else math.inf,
                self._stays[job_id].score_s if job_id in self._stays else math.inf,
            )
            for job_id in board.works
        }

    def seats(self, plan: Plan) -> dict[str, Seat]:
        """Where jobs stand after a plan; who has none waits."""
        board = self._board
        seats = dict(board.seats)
        for stopped in plan.preemptions:
            del seats[stopped.job_id]
        changes: list[Start | Move] = [*plan.starts, *plan.moves]
        for change in changes:
            work, before = board.works[change.job_id], board.seats.get(change.job_id)
            evaluation = evaluate(work.spec, board.cluster, change.placement.segments, change.placement.cuts)
            ready_s = board.now_s
            if before is not None:
                ready_s += board.stopping_s(before)
            if work.has_state:
                ready_s += restart_s(work.spec, board.cluster, change.placement, change.transfers)
            seats[change.job_id] = seat_of(work.spec, board.cluster, evaluation, ready_s, change.transfers)
        return seats

    def gap(self, seats: Mapping[str, Seat]) -> Gap:
        """Of a decision that gives these seats."""
        known_s, ends_s = self._played_on(seats)
        slowest_s = max(self._bace_s, ends_s)
        return Gap(self._best_s(known_s, slowest_s, None), self._best_s(known_s, slowest_s, seats))

    def _best_s(self, known_s: float, slowest_s: float, seats: Mapping[str, Seat] | None) -> float:
        """What the best plan of all comes to, or of those that begin with these seats; one of `known_s` is known."""
        rough = self._solved(known_s, slowest_s, seats, _FEW_MODES)
        if rough is not None:
            known_s = min(known_s, rough.score_s)
        found = self._solved(known_s, slowest_s, seats, None)
        return known_s if found is None else found.score_s

    def _solved(
        self, known_s: float, slowest_s: float, seats: Mapping[str, Seat] | None, modes: int | None
    ) -> Timetable | None:
        """With at most so many modes of each job, the best: that is quick, and says what need not be looked at."""
        spare_s = known_s - math.fsum(self._least_s.values())
        asked_again_s = 0.0
        if seats is not None:
            asked_again_s = min(
                (self._board.remaining_s(self._board.works[job_id], seat) for job_id, seat in seats.items()),
                default=0.0,
            )
        tasks = []
        for job_id in self._board.works:
            if seats is not None and job_id in seats:
                tasks.append(Task(job_id, now=(self._mode(job_id, seats[job_id]),)))
                continue
            later = (
                self._modes[job_id].up_to(self._least_s[job_id] + spare_s + len(self._modes))
                if job_id in self._modes
                else []
            )
            stays = (self._stays[job_id],) if seats is None and job_id in self._stays else ()
            tasks.append(Task(job_id, later[:modes], stays, asked_again_s))
        return best_timetable(tasks, self._board.cluster, spare_s + len(tasks), slowest_s, LIMIT)

    def _played_on(self, seats: Mapping[str, Seat]) -> tuple[float, float]:
        """The score, and the sum of the ends, of a decision after which whoever waits is given its best seat as others
        end, the shortest first."""
        board = self._board.clone()
        for job_id in [job_id for job_id in board.seats if seats.get(job_id) is not board.seats[job_id]]:
            board.evict(job_id)
        for job_id, seat in seats.items():
            if job_id not in board.seats:
                board.place(job_id, seat)
        total_s = math.fsum(self._mode(job_id, seat).score_s for job_id, seat in seats.items())
        ends = {job_id: board.now_s + end_s for end_s, job_id in ends_s(board)}
        while len(ends) < len(board.works):
            to_s = min(end_s for job_id, end_s in ends.items() if job_id in board.seats)
            board.advance(to_s)
            for job_id in [job_id for job_id in board.seats if ends[job_id] <= to_s]:
                board.release(job_id)
            for work in shortest_first(board):
                if work.job_id in ends:
                    continue
                option = best_option(work, replace(board, lens=self._lens[work.job_id]), None)
                if option is not None:
                    board.place(work.job_id, option.seat)
                    ends[work.job_id] = to_s + option.run_s
                    total_s += to_s - self._board.now_s + option.score_s + self._stopped_s(work)
        return total_s, math.fsum(end_s - self._board.now_s for end_s in ends.values())

    def _stopped_s(self, work: Work) -> float:
        seat = self._board.seats.get(work.job_id)
        return 0.0 if seat is None else self._board.stopping_s(seat)

    def _mode(self, job_id: str, seat: Seat) -> Mode:
        return mode_of(self._board.works[job_id], seat, replace(self._board, lens=self._lens[job_id]))
