"""A place kept for a job that has waited too long: nobody starts, grows or moves in its way.

As in EASY (D. Lifka, "The ANL/IBM SP scheduling system", 1995) one job has a reservation: the seat and the moment at
which it will find room first as running jobs end, by forecast. Others may take what is free until then if they will
have ended, or if the job still finds room at that moment with them beside it. Forecasts err; where a job has waited
very much too long, nobody who starts is believed to have ended by then: others get only what the job leaves over, and
it begins at the latest when all that run now have ended.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from scheduler.policies.horizon.board import Board
from scheduler.policies.horizon.ground import Room
from scheduler.policies.horizon.options import best_option
from scheduler.policies.horizon.queue import ends_s, has_waited_far_too_long
from scheduler.policies.horizon.work import Option, Seat, Work


@dataclass(slots=True)
class Reservation:
    """`later` is the board at the moment at which the job will begin: it has its seat there, as has everybody who will
    still run. `drains`: nobody is believed to have ended by then who does not run yet."""

    work: Work
    later: Board
    drains: bool

    @property
    def seat(self) -> Seat:
        """Where the job will begin."""
        return self.later.seats[self.work.job_id]

    @property
    def begins_s(self) -> float:
        """When it will."""
        return self.later.now_s

    def clone(self) -> Reservation:
        """An independent copy."""
        return Reservation(self.work, self.later.clone(), self.drains)

    def allows(self, board: Board, work: Work, seat: Seat) -> bool:
        """Whether the job still begins when it would if another one, which has no seat now, takes this one."""
        return (
            not self._outlasts(board, work, seat)
            or self.later.holds(seat)
            or self._making_way(work, seat) is not None
        )

    def place(self, board: Board, work: Work, seat: Seat) -> Reservation | None:
        """The reservation once another job has taken a seat: a later one, where that stands in its way."""
        if not self._outlasts(board, work, seat):
            return self
        if self.later.holds(seat):
            self.later.place(work.job_id, seat)
            return self
        return self._making_way(work, seat) or reserve(board, self.work)

    def release(self, job_id: str) -> None:
        """Another job leaves its seat."""
        if job_id in self.later.seats:
            self.later.release(job_id)

    def beside(self, board: Board) -> Board:
        """A board on which only that is free which is free now and will be beside the job."""
        residual = board.residual.least(self.later.residual)
        return replace(
            board, world=board.world.with_residual(residual), room=Room.of(residual), found={}, kept=None
        )

    def _outlasts(self, board: Board, work: Work, seat: Seat) -> bool:
        """Whether another job on that seat must be thought to be there still when the job begins."""
        is_new = work.seat is not seat
        return (self.drains and is_new) or board.now_s + board.remaining_s(work, seat) > self.later.now_s

    def _making_way(self, work: Work, seat: Seat) -> Reservation | None:
        """The reservation with another seat for the job at the same moment, which leaves this one to the other."""
        later = self.later.clone()
        later.release(self.work.job_id)
        if not later.holds(seat):
            return None
        later.place(work.job_id, seat)
        option = best_option(self.work, later, None)
        if option is None:
            return None
        later.place(self.work.job_id, option.seat)
        return Reservation(self.work, later, self.drains)


def reserve(board: Board, work: Work) -> Reservation | None:
    """The first moment at which the job will find room as those end who have a seat; None if it will not even then."""
    ends = ends_s(board)
    best: tuple[Board, Option] | None = None
    fewest, most = 1, len(ends)
    while fewest <= most:  # the more have left, the more room there is
        count = (fewest + most) // 2
        later = _after(board, ends, ends[count - 1][0])
        option = best_option(work, later, None)
        if option is None:
            fewest = count + 1
        else:
            best, most = (later, option), count - 1
    if best is None:
        return None
    later, option = best
    later.place(work.job_id, option.seat)
    return Reservation(work, later, has_waited_far_too_long(work, board))


def allowed_option(work: Work, board: Board, seat: Seat | None, below_s: float = math.inf) -> Option | None:
    """As `best_option`, among the seats that keep nobody waiting who has a reservation."""
    option, kept = best_option(work, board, seat, below_s), board.kept
    if option is None or kept is None or work.job_id == kept.work.job_id:
        return option
    if kept.allows(board, work, option.seat):
        return option
    return best_option(work, kept.beside(board), seat, below_s)


def _after(board: Board, ends: list[tuple[float, str]], wait_s: float) -> Board:
    """The board after so long, without those who will have ended."""
    later = replace(board, kept=None).clone()
    later.advance(board.now_s + wait_s)
    for end_s, job_id in ends:
        if end_s <= wait_s:
            later.release(job_id)
    return later
