"""What horizon does with the jobs on a board: keep a place, start, make room, grow and move."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from scheduler.policies.horizon.board import Board
from scheduler.policies.horizon.config import HorizonConfig
from scheduler.policies.horizon.options import best_option
from scheduler.policies.horizon.queue import alone_s, ends_s, in_turn, shortest_first, starved
from scheduler.policies.horizon.reservation import allowed_option, reserve
from scheduler.policies.horizon.scoring import keeps_limits, score_of
from scheduler.policies.horizon.tenants import at_their_share, sated
from scheduler.policies.horizon.work import UNLIMITED, Option, Seat, Work

Choose = Callable[[Work, Board, Seat | None], Option | None]
"""Where a job goes that leaves a seat (None: it waits), on what is free; None if nowhere."""

_ENDS: Final = 8
"""How many ends of jobs are looked at to tell how long a job would wait."""


def keep_place(board: Board) -> None:
    """Whoever has waited too long starts before everybody else, or has a place kept for it."""
    work = starved(board)
    if work is None:
        return
    option = best_option(work, board, None)
    if option is not None:
        board.place(work.job_id, option.seat)
    elif not (board.config.ejects and make_room(board, work)):
        board.kept = reserve(board, work)


def start_waiting(board: Board) -> None:
    """Every waiting job, the shortest first, gets its best seat; where it fits nowhere, room may be made for it."""
    refused: set[object] = set()
    for work in in_turn(shortest_first(board), board):
        if work.demand in refused:
            continue
        option = allowed_option(work, board, None)
        if option is not None:
            board.place(work.job_id, option.seat)
        elif not (board.config.ejects and make_room(board, work)) and work.limits is UNLIMITED:
            refused.add(work.demand)


def make_room(board: Board, newcomer: Work, choose: Choose = allowed_option) -> bool:
    """Push one longer job aside, if that costs it clearly less than the newcomer would wait otherwise.

    The one pushed aside is given the best seat of what is left; without any it waits until the newcomer has ended.
    """
    victims = _longest(board, newcomer)
    wait_s = _until_room(board, newcomer, choose) if victims else 0.0
    best: tuple[float, Work, Option, Option | None] | None = None
    for victim in victims:
        seat = board.seats[victim.job_id]
        stays_s = board.remaining_s(victim, seat)
        trial = board.clone()
        trial.evict(victim.job_id)
        option = choose(newcomer, trial, None)
        if option is None:
            continue
        trial.place(newcomer.job_id, option.seat)
        again = choose(victim, trial, seat)
        if again is None and not _may_wait(victim, trial, seat, option.run_s):
            continue
        away_s = option.run_s + board.stopping_s(seat) + board.cluster.restart.fixed_s + stays_s
        loss_s = (away_s if again is None else again.run_s) - stays_s
        if loss_s * board.config.ejection_margin < wait_s and (best is None or loss_s < best[0]):
            best = (loss_s, victim, option, again)
    if best is None:
        return False
    _, victim, option, again = best
    board.evict(victim.job_id)
    board.place(newcomer.job_id, option.seat)
    if again is not None:
        board.place(victim.job_id, again.seat)
    return True


def _longest(board: Board, newcomer: Work) -> list[Work]:
    """The jobs that may be pushed aside for a newcomer: longer than it, settled, and none of a tenant that holds less
    than its share for one of a tenant that holds its own."""
    config, held = board.config, at_their_share(board)
    length_s, is_due = alone_s(newcomer), newcomer.spec.project not in held
    may = [
        (-board.remaining_s(work, seat), job_id, work)
        for job_id, seat in board.seats.items()
        if (work := board.works[job_id]).movable
        and seat.ready_s + config.settle_s <= board.now_s
        and board.remaining_s(work, seat) > max(length_s, config.least_remaining_s)
        and work.spec.priority <= newcomer.spec.priority
        and (is_due or work.spec.project in held)
    ]
    return [work for _, _, work in sorted(may, key=lambda each: each[:2])[: config.candidates_for_ejection]]


def _may_wait(victim: Work, board: Board, seat: Seat, wait_s: float) -> bool:
    """Whether a job that leaves its seat could go on there after so long and still keep its limits."""
    later = replace(seat, ready_s=board.now_s + wait_s + board.cluster.restart.fixed_s)
    return keeps_limits(victim, later, board)


def _until_room(board: Board, work: Work, choose: Choose) -> float:
    """Seconds until enough jobs will have ended that the waiting job finds a seat, as far as can be told, whoever has a
    place kept for it."""
    trial = board.clone()
    trial.kept = None
    wait_s = 0.0
    for end_s, job_id in ends_s(board)[:_ENDS]:
        trial.release(job_id)
        wait_s = end_s
        if choose(work, trial, None) is not None:
            break
    return wait_s


def improve_running(board: Board, most: int | None = None) -> None:
    """Give running jobs a better seat, the shortest first, where that pays for the restart with something to spare.

    `most` bounds how many are looked at.
    """
    config = board.config
    for end_s, job_id in ends_s(board)[:most]:
        work, seat = board.works[job_id], board.seats[job_id]
        settled = seat.ready_s + config.settle_s <= board.now_s
        if not (work.movable and settled and end_s > config.least_remaining_s):
            continue
        stays = score_of(work, seat, board) if keeps_limits(work, seat, board) else math.inf
        board.release(job_id)
        option = allowed_option(work, board, seat, below_s=stays * (1 - config.gain_part))
        if (
            option is not None
            and option.seat.placement.gpus > seat.placement.gpus
            and _is_in_debt(work, board)
        ):
            option = None
        board.place(job_id, option.seat if option is not None and _pays(option, stays, config) else seat)


def _is_in_debt(work: Work, board: Board) -> bool:
    """Whether a job of a tenant that holds less than its share waits, and this one's tenant holds its own."""
    held = sated(board)
    return work.spec.project in held and any(
        job_id not in board.seats and each.spec.project not in held for job_id, each in board.works.items()
    )


def _pays(option: Option, stays: float, config: HorizonConfig) -> bool:
    """Whether a seat is better than one that is worth so much by a part of that and of the restart it takes."""
    return option.score_s <= stays * (1 - config.gain_part) - config.gain_restarts * option.restart_s
