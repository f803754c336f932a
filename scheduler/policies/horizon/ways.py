"""The ways of deciding that the portfolio chooses from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from scheduler.options import Demand
from scheduler.placement import Transfer
from scheduler.policies import bace
from scheduler.policies.horizon.acts import improve_running, start_waiting
from scheduler.policies.horizon.board import Board
from scheduler.policies.horizon.config import HorizonConfig
from scheduler.policies.horizon.queue import in_turn
from scheduler.policies.horizon.rollout import Act
from scheduler.policies.horizon.scoring import keeps_limits
from scheduler.policies.horizon.weights import Weights
from scheduler.policies.horizon.work import Work, seat_of
from scheduler.priority import by_dynamic_priority
from scheduler.restart import granted_transfers, restart_s
from scheduler.snapshot import WaitingJob


@dataclass(frozen=True, slots=True)
class Way:
    """A way of deciding: what it does first, and what it is taken to do later on."""

    name: str
    config: HorizonConfig
    weights: Weights
    first: Act
    later: Act
    apart: bool = False
    """Jobs that stand in one region, and those that wait, look for room in one region only."""


def elastic(board: Board) -> None:
    """Start, make room, grow and move."""
    start_waiting(board)
    if board.config.resizes:
        improve_running(board)
        start_waiting(board)


def elastic_later(board: Board) -> None:
    """What the elastic way is taken to do at later ends: it starts who waits; only then the others grow."""
    start_waiting(board)
    if board.config.resizes and len(board.seats) == len(board.works):
        improve_running(board, board.config.later_improved)


def by_bace_priority(board: Board) -> list[Work]:
    """The waiting jobs in the order of BACE-Pipe's dynamic priority."""
    waiting = {job_id: work for job_id, work in board.works.items() if job_id not in board.seats}
    if not waiting:
        return []
    asking = [(_as_waiting(work), work.demand) for work in waiting.values()]
    ordered = by_dynamic_priority(asking, board.residual.congestion())
    return [waiting[job.spec.job_id] for job, _ in ordered]


def as_bace(board: Board) -> None:
    """BACE-Pipe's own decision for the jobs that wait; running jobs stay where they are."""
    refused: set[Demand] = set()
    for work in in_turn(by_bace_priority(board), board):
        if work.demand in refused:
            continue
        proposal = bace.place(work.demand, board.world)
        if proposal is None:
            refused.add(work.demand)
            continue
        transfers: tuple[Transfer, ...] = ()
        ready_s = board.now_s
        if work.has_state:
            placement = proposal.evaluation.placement
            granted = granted_transfers(work.spec, work.state, placement, board.residual)
            if granted is None:
                continue
            transfers = granted
            ready_s += restart_s(work.spec, board.cluster, placement, transfers)
        seat = seat_of(work.spec, board.cluster, proposal.evaluation, ready_s, transfers)
        if keeps_limits(work, seat, board) and (board.kept is None or board.kept.allows(board, work, seat)):
            board.place(work.job_id, seat)


def ways(config: HorizonConfig, weights: Weights) -> Iterator[Way]:
    """The main way, and those that save more, or less, of what that costs in time."""
    thrifty = replace(_slower(config, 3.0), idle_part=max(config.idle_part, config.idle_part_saving))
    yield Way("elastic", config, weights, elastic, elastic_later)
    yield Way("thrifty", thrifty, weights, elastic, elastic_later)
    yield Way("quick", _slower(config, 0.4), weights, elastic, elastic_later)
    yield Way("quickest", _slower(config, 0.1), weights, elastic, elastic_later)


def cheap_ways(config: HorizonConfig, weights: Weights) -> Iterator[Way]:
    """From what saves most to what saves nothing, and BACE-Pipe."""
    for name, part in (("cheapest", 4.0), ("cheap", 1.0), ("quick", 1 / 4), ("quickest", 1 / 32)):
        yield Way(name, _slower(config, part), weights, elastic, elastic_later)
    yield bace_way(config, weights)


def bace_way(config: HorizonConfig, weights: Weights) -> Way:
    """BACE-Pipe's decisions, now and later."""
    return Way("bace", config, weights, as_bace, as_bace)


def _slower(config: HorizonConfig, part: float) -> HorizonConfig:
    """What saves so much more, or less, of what it costs in time."""
    return replace(
        config, most_slower=config.most_slower * part, most_slower_egress=config.most_slower_egress * part
    )


def _as_waiting(work: Work) -> WaitingJob:
    return WaitingJob(work.spec, max(1, round(work.steps)))
