"""A joint choice for a few jobs that nobody may move: who starts now, where and on how much, so that the sum over all
known jobs is least once those that wait have had their turn.

One after the other every job takes what is best for itself: the short one the cheap region that the long one needed
more. Where what is decided cannot be put right later on, all of it is chosen at once (`timetable.py`): every job in one
of several options, now or when others have ended.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from scheduler.errors import InvalidValueError
from scheduler.evaluate import evaluate
from scheduler.policies.horizon.acts import start_waiting
from scheduler.policies.horizon.board import Board
from scheduler.policies.horizon.config import StageChoice
from scheduler.policies.horizon.options import option_on, several_options
from scheduler.policies.horizon.queue import shortest_first
from scheduler.policies.horizon.scoring import score_of
from scheduler.policies.horizon.timetable import Mode, Task, Timetable, best_timetable
from scheduler.policies.horizon.work import UNLIMITED, Work

_HAIR: Final = 1.002
"""Scores within this ratio of each other are alike."""


def chosen_jointly(board: Board, known: Board, slowest_s: float) -> Board | None:
    """The board after the first step of the best plan of those that take at most `slowest_s` of completion times; None
    where it is for other ways to decide. `known` is the board after a first step that is good enough.

    That is where a job may be moved or has limits, where tenants have shares, jobs unlike priorities, or one a place
    kept; with more jobs than `joint_jobs`; where everybody gets what suits it best anyway; and where the solver proves
    nothing within its limit.
    """
    if not may_choose_jointly(board):
        return None
    waiting = shortest_first(board)
    offered = {work.job_id: _modes(work, board, known) for work in waiting}
    if not all(offered.values()):
        return None
    if _suits_everybody(board, offered):
        return None
    try:
        plan = _plan(board, offered, slowest_s)
    except InvalidValueError:
        return None
    return None if plan is None else _begun(board, plan, waiting)


def may_choose_jointly(board: Board) -> bool:
    """Whether only scores decide, and what is decided stays so."""
    works = board.works.values()
    waiting = {work.spec.priority for job_id, work in board.works.items() if job_id not in board.seats}
    return (
        2 <= len(works) <= board.config.joint_jobs
        and len(waiting) == 1
        and board.kept is None
        and board.config.stages is not StageChoice.MOST
        and not board.shares
        and not any(work.movable or work.limits is not UNLIMITED for work in works)
    )


def _modes(work: Work, board: Board, known: Board) -> list[Mode]:
    """What a job could have of the whole cluster, the best first; nothing that something else beats."""
    empty = replace(board.emptied(), lens=board.weights_of(work))
    found: list[Mode] = []
    modes = [Mode.of(each.score_s, each.run_s, each.seat) for each in several_options(work, empty)]
    seat = known.seats.get(work.job_id)
    if seat is not None:
        modes.append(Mode.of(score_of(work, seat, board), board.remaining_s(work, seat), seat))
    for mode in sorted(modes, key=lambda each: (each.score_s, each.duration_s)):
        if not any(other.beats(mode) for other in found):
            found.append(mode)
    return found


def _suits_everybody(board: Board, offered: Mapping[str, Sequence[Mode]]) -> bool:
    """Whether each job, one after the other, gets what it would take of an empty cluster."""
    greedy = board.clone()
    start_waiting(greedy)
    return all(
        job_id in greedy.seats
        and score_of(greedy.works[job_id], greedy.seats[job_id], greedy) <= _HAIR * modes[0].score_s
        for job_id, modes in offered.items()
    )


def _plan(board: Board, offered: Mapping[str, Sequence[Mode]], slowest_s: float) -> Timetable | None:
    tasks = [Task(job_id, modes) for job_id, modes in offered.items()]
    latest_s = math.fsum(min(mode.duration_s for mode in modes) for modes in offered.values())
    longest_s = 0.0
    for job_id, seat in board.seats.items():
        work = board.works[job_id]
        stays = Mode.of(score_of(work, seat, board), board.remaining_s(work, seat), seat)
        tasks.append(Task(job_id, now=(stays,)))
        longest_s = max(longest_s, stays.duration_s)
    return best_timetable(tasks, board.cluster, latest_s + longest_s, slowest_s, board.config.joint_limit)


def _begun(board: Board, plan: Timetable, waiting: Sequence[Work]) -> Board:
    """The board with those on it that begin now."""
    after = board.clone()
    for work in waiting:
        start_s, mode = plan.starts[work.job_id]
        if start_s > 0:
            continue
        placement = mode.seat.placement
        evaluation = evaluate(work.spec, board.cluster, placement.segments, placement.cuts)
        option = option_on(work, after, None, evaluation)
        if option is not None and after.holds(option.seat):
            after.place(work.job_id, option.seat)
    return after
