"""What a way of deciding comes to for the jobs now known: played to their end at the prices forecast."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from scheduler.policies.horizon.board import Board
from scheduler.policies.horizon.queue import ends_s

_SAME_S = 1e-6
"""Jobs that end within so little of each other end at once."""

_NEVER_S = 30 * 86_400.0
"""What a job that finds no place any more is thought to wait."""

Act = Callable[[Board], None]
"""A way of deciding: changes a board."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Of a rollout: seconds until they end, summed over the jobs, and their bills."""

    jct_s: float
    holding_usd: float
    """Electricity of what is owned, rent of what is rented."""
    egress_usd: float

    @property
    def bill_usd(self) -> float:
        """All that is paid."""
        return self.holding_usd + self.egress_usd


def play(board: Board, act: Act, most_events: int) -> Outcome:
    """Decide so at every end until every known job has ended; after so many ends leave the rest as they stand.

    The board is used up. Jobs that find no place though everybody has ended, or none any more by their deadline, count
    as very long.
    """
    board.kept = None  # who comes first is for the moment; what a way of deciding comes to is asked here
    began_s, jct_s = board.now_s, 0.0
    bill = _Bill()
    for _ in range(most_events):
        if not board.seats:
            break
        step_s = ends_s(board)[0][0]
        _advance(board, step_s, bill)
        for left_s, job_id in ends_s(board):
            if left_s > _SAME_S:
                break
            jct_s += board.now_s - began_s
            board.release(job_id)
            del board.works[job_id]
        act(board)
    for left_s, job_id in ends_s(board):
        bill.add(board, job_id, left_s)
        jct_s += board.now_s - began_s + left_s
    waiting, each_s = len(board.works) - len(board.seats), board.now_s - began_s
    if not board.seats:
        each_s += _NEVER_S
    return Outcome(jct_s + waiting * each_s, bill.holding_usd, bill.egress_usd)


@dataclass(slots=True)
class _Bill:
    holding_usd: float = 0.0
    egress_usd: float = 0.0

    def add(self, board: Board, job_id: str, duration_s: float) -> float:
        """What the seat of a job costs from the board's moment on."""
        seat, before_usd = board.seats[job_id], self.holding_usd + self.egress_usd
        self.holding_usd += board.holding_usd(seat, duration_s)
        starting_s = max(0.0, seat.ready_s - board.now_s)
        self.egress_usd += max(0.0, duration_s - starting_s) / seat.iteration_s * seat.egress_usd_per_step
        if 0.0 < starting_s <= duration_s:  # once, though others may end while it starts
            self.egress_usd += seat.egress_usd_once
        self.egress_usd += board.works[job_id].bringing_usd(seat.placement)
        return self.holding_usd + self.egress_usd - before_usd


def _advance(board: Board, step_s: float, bill: _Bill) -> None:
    """Let time pass on the board."""
    to_s = board.now_s + step_s
    for job_id, seat in board.seats.items():
        paid_usd = bill.add(board, job_id, step_s)
        work = board.works[job_id]
        done = max(0.0, to_s - max(board.now_s, seat.ready_s)) / seat.iteration_s
        board.works[job_id] = replace(
            work,
            steps=max(0.0, work.steps - done),
            declared=max(0.0, work.declared - done),
            brought=work.brought | {seat.placement.segments[0].region},
            limits=work.limits.after(paid_usd),
        )
    board.advance(to_s)
