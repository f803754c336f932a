"""BACE-Pipe's own decisions, elastic: its priority, its pathfinder and Cost-Min, and horizon's resize and ejection.

A waiting job that finds no place may push one longer job aside, if that costs it clearly less than the newcomer would
wait; running jobs are offered what BACE-Pipe would give them now. Margins and settling times are those of horizon. What
is left between this policy and horizon is what horizon decides better, not what elasticity alone gives.
"""

from __future__ import annotations

from scheduler.options import Demand
from scheduler.policies import bace
from scheduler.policies.elastic import is_settled, option_of
from scheduler.policies.horizon.board import Board
from scheduler.policies.horizon.options import Option
from scheduler.policies.horizon.queue import ends_s
from scheduler.policies.horizon.ways import by_bace_priority
from scheduler.policies.horizon.work import Seat, Work

_ENDS = 8
"""How many ends of jobs are looked at to tell how long a job would wait."""


def act(board: Board) -> None:
    """Starts and ejects, improves what runs, and starts on what that has left."""
    _start(board)
    if _improve(board):
        _start(board)


def _start(board: Board) -> None:
    refused: set[Demand] = set()
    for work in by_bace_priority(board):
        if work.demand in refused:
            continue
        option = _choice(work, board, None)
        if option is not None:
            board.place(work.job_id, option.seat)
        elif not _make_room(board, work):
            refused.add(work.demand)


def _choice(work: Work, board: Board, seat: Seat | None) -> Option | None:
    """Where BACE-Pipe would put a job that leaves `seat`."""
    return option_of(work, board, bace.place(work.demand, board.world), seat)


def _make_room(board: Board, newcomer: Work) -> bool:
    """Push that longer job aside which loses least, if it loses clearly less than the newcomer would wait."""
    victims = _longest(board, newcomer)
    wait_s = _until_room(board, newcomer) if victims else 0.0
    best: tuple[float, Work, Option, Option | None] | None = None
    for victim in victims:
        seat = board.seats[victim.job_id]
        stays_s = board.remaining_s(victim, seat)
        trial = board.clone()
        trial.evict(victim.job_id)
        option = _choice(newcomer, trial, None)
        if option is None:
            continue
        trial.place(newcomer.job_id, option.seat)
        again = _choice(victim, trial, seat)
        away_s = option.run_s + board.stopping_s(victim, seat) + board.cluster.restart.fixed_s + stays_s
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
    """Those who may be pushed aside for a newcomer, the longest first."""
    config = board.config
    least_s = max(newcomer.steps * newcomer.demand.solo_iteration_s, config.least_remaining_s)
    may = [
        (-left_s, job_id, work)
        for left_s, job_id in ends_s(board)
        if left_s > least_s
        and is_settled(work := board.works[job_id], board.seats[job_id], board)
        and work.spec.priority <= newcomer.spec.priority
    ]
    return [work for _, _, work in sorted(may, key=lambda each: each[:2])[: config.candidates_for_ejection]]


def _until_room(board: Board, work: Work) -> float:
    """Seconds until so many jobs will have ended that the waiting one finds a place."""
    trial, ends = board.clone(), ends_s(board)[:_ENDS]
    for end_s, job_id in ends:
        trial.release(job_id)
        if _choice(work, trial, None) is not None:
            return end_s
    return ends[-1][0] if ends else 0.0


def _improve(board: Board) -> bool:
    """Give running jobs what BACE-Pipe would give them now, where that saves more than the restart costs.

    Whether anybody was moved.
    """
    config, moved = board.config, False
    for left_s, job_id in ends_s(board):
        work, seat = board.works[job_id], board.seats[job_id]
        if left_s <= config.least_remaining_s or not is_settled(work, seat, board):
            continue
        if not _may_gain(work, seat, board):
            continue
        board.release(job_id)
        option = _choice(work, board, seat)
        margin_s = config.gain_part * left_s + config.gain_restarts * (option.restart_s if option else 0.0)
        better = option is not None and option.run_s <= left_s - margin_s
        board.place(job_id, option.seat if option is not None and better else seat)
        moved = moved or better
    return moved


def _may_gain(work: Work, seat: Seat, board: Board) -> bool:
    """Whether anything is free for the job, and it has not all that BACE-Pipe would ever give it."""
    demand, free = work.demand, board.residual.free_gpus
    if len(demand.candidates) == 1 and not seat.placement.cuts:
        (candidate,) = demand.candidates
        if seat.placement.stages >= candidate.most:
            return False
    return any(free(pool) >= demand.gpus_per_stage for each in demand.candidates for pool in each.pools)
