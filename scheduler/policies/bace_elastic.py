"""BACE-Pipe's own decisions, elastic: its priority, its pathfinder and Cost-Min, and horizon's resize and ejection.

A waiting job that finds no place may push one longer job aside, if that costs it clearly less than the newcomer would
wait; running jobs are offered what BACE-Pipe would give them now. Margins and settling times are those of horizon. What
is left between this policy and horizon is what horizon decides better, not what elasticity alone gives.
"""

from __future__ import annotations

from scheduler.options import Demand
from scheduler.policies import bace
from scheduler.policies.elastic import is_settled, option_of
from scheduler.policies.horizon.acts import make_room
from scheduler.policies.horizon.board import Board
from scheduler.policies.horizon.queue import ends_s
from scheduler.policies.horizon.ways import by_bace_priority
from scheduler.policies.horizon.work import Option, Seat, Work


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
        elif not make_room(board, work, _choice):
            refused.add(work.demand)


def _choice(work: Work, board: Board, seat: Seat | None) -> Option | None:
    """Where BACE-Pipe would put a job that leaves `seat`."""
    return option_of(work, board, bace.place(work.demand, board.world), seat)


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
