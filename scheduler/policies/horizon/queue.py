"""Who comes first, who has waited too long, and who ends when."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from scheduler.policies.horizon.board import Board
from scheduler.policies.horizon.tenants import sated
from scheduler.policies.horizon.work import Work


def shortest_first(board: Board) -> list[Work]:
    """The waiting jobs: the user's priority first, then the least time left to run, less a part of the time waited."""
    return sorted(
        _waiting(board), key=lambda work: (-work.spec.priority, rank_s(work, board), *_arrival(work))
    )


def in_turn(ordered: Iterable[Work], board: Board) -> Iterator[Work]:
    """Jobs that are to be given a seat one after the other, while they are: of one priority, those of tenants that hold
    less than their share come before the others, else in the order in which they are told."""
    queue, held = list(ordered), sated(board)
    while queue:
        at = next((number for number, work in enumerate(queue) if work.spec.project not in held), 0)
        if queue[at].spec.priority != queue[0].spec.priority:
            at = 0
        work = queue.pop(at)
        yield work
        if work.job_id in board.seats:
            held = sated(board)


def rank_s(work: Work, board: Board) -> float:
    """What a waiting job is ordered by: its run time alone, less `aging` for every second it has waited; or what it has
    to spare until its deadline, where that is less. The same for all where the shortest does not come first."""
    if not board.config.shortest_first:
        return 0.0
    return min(alone_s(work) - board.config.aging * waited_s(work, board), spare_s(work, board.now_s))


def spare_s(work: Work, now_s: float) -> float:
    """How long a job could still wait and end by its deadline, by what it declared; infinite without a deadline."""
    return work.limits.until_s - now_s - work.declared * work.demand.solo_iteration_s


def alone_s(work: Work) -> float:
    """How long the rest of a job would take alone, at its best."""
    return work.steps * work.demand.solo_iteration_s


def waited_s(work: Work, board: Board) -> float:
    """Since when a job waits, or waits again."""
    return max(0.0, board.now_s - work.waits_since_s)


def patience_s(work: Work, board: Board) -> float:
    """How long a job may be kept waiting: as long as it would run, what its owner allows where that is less, or half of
    what it had to spare until its deadline when it began to wait."""
    own_s = max(board.config.patience_s, board.config.patience_runs * alone_s(work))
    most_s = math.inf if work.spec.max_wait_s is None else work.spec.max_wait_s
    return min(own_s, most_s, max(0.0, spare_s(work, work.waits_since_s) / 2))


def starved(board: Board) -> Work | None:
    """The job that has waited too long and is next to have a place kept for it.

    It is one of those with the highest priority that waits, of a tenant that holds less than its share where there is
    any, and of these the one that has waited longest in parts of
    what it may be kept waiting (the highest response ratio next, P. Brinch Hansen, 1971): the short come first, as they
    do anyway. Under a load that no order can serve that would keep the long waiting for ever, so whoever has waited
    very much too long comes before all that came later.
    """
    waiting = _waiting(board)
    highest = max((work.spec.priority for work in waiting), default=0)
    first = [work for work in waiting if work.spec.priority == highest]
    held = sated(board)
    due = [work for work in first if work.spec.project not in held] or first
    found = [work for work in due if waited_s(work, board) >= patience_s(work, board)]

    def turn(work: Work) -> tuple[float, float, float, float, str]:
        ratio = waited_s(work, board) / max(1.0, patience_s(work, board))
        since_s = work.waits_since_s if has_waited_far_too_long(work, board) else math.inf
        return (since_s, -ratio, rank_s(work, board), *_arrival(work))

    return min(found, key=turn, default=None)


def has_waited_far_too_long(work: Work, board: Board) -> bool:
    """Whether nothing that others may want counts any more against the job's start."""
    return waited_s(work, board) > board.config.drains_after * patience_s(work, board)


def ends_s(board: Board) -> list[tuple[float, str]]:
    """(seconds from now until it ends, job id) of every job on a seat, the first to end first."""
    return sorted(
        (board.remaining_s(board.works[job_id], seat), job_id) for job_id, seat in board.seats.items()
    )


def _waiting(board: Board) -> list[Work]:
    return [work for job_id, work in board.works.items() if job_id not in board.seats]


def _arrival(work: Work) -> tuple[float, str]:
    return (work.spec.submit_s, work.job_id)
