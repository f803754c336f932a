"""Who comes first, and who ends when."""

from __future__ import annotations

from scheduler.policies.horizon.board import Board
from scheduler.policies.horizon.work import Work


def shortest_first(board: Board) -> list[Work]:
    """The waiting jobs: the user's priority first, then the least time left to run, less a part of the time waited."""
    waiting = [work for job_id, work in board.works.items() if job_id not in board.seats]
    return sorted(waiting, key=lambda work: (-work.spec.priority, rank_s(work, board), *_arrival(work)))


def rank_s(work: Work, board: Board) -> float:
    """What a waiting job is ordered by: its run time alone, less `aging` for every second it has waited."""
    waited_s = max(0.0, board.now_s - work.waits_since_s)
    return work.steps * work.demand.solo_iteration_s - board.config.aging * waited_s


def ends_s(board: Board) -> list[tuple[float, str]]:
    """(seconds from now until it ends, job id) of every job on a seat, the first to end first."""
    return sorted(
        (board.remaining_s(board.works[job_id], seat), job_id) for job_id, seat in board.seats.items()
    )


def _arrival(work: Work) -> tuple[float, str]:
    return (work.spec.submit_s, work.job_id)
