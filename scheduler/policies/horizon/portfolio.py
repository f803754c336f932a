"""Several ways of deciding, each played to the end of the jobs now known; the best one's first step is taken.

The portfolio always holds BACE-Pipe itself, so that no plan is taken that looks worse than its.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from scheduler.options import Demand
from scheduler.placement import Transfer
from scheduler.policies import bace
from scheduler.policies.horizon.acts import improve_running, start_waiting
from scheduler.policies.horizon.board import Board
from scheduler.policies.horizon.config import HorizonConfig
from scheduler.policies.horizon.joint import chosen_jointly
from scheduler.policies.horizon.queue import in_turn
from scheduler.policies.horizon.rollout import Act, Outcome, play
from scheduler.policies.horizon.scoring import keeps_limits
from scheduler.policies.horizon.weights import Weights
from scheduler.policies.horizon.work import Work, seat_of
from scheduler.policies.narrowed import in_one_region
from scheduler.priority import by_dynamic_priority
from scheduler.restart import granted_transfers, restart_s
from scheduler.snapshot import WaitingJob

_DEARER: Final = 0.02
_SLOWER: Final = 0.001
"""Parts of what is paid and of completion times that are no harm beside a gain in the other."""


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


def as_bace(board: Board) -> None:
    """BACE-Pipe's own decision for the jobs that wait; running jobs stay where they are."""
    waiting = {job_id: work for job_id, work in board.works.items() if job_id not in board.seats}
    asking = [(_as_waiting(work), work.demand) for work in waiting.values()]
    ordered = by_dynamic_priority(asking, board.residual.congestion())
    refused: set[Demand] = set()
    for work in in_turn((waiting[job.spec.job_id] for job, _ in ordered), board):
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
    """The portfolio, the main way first."""
    yield Way("bace", config, weights, as_bace, as_bace)
    yield Way("elastic", config, weights, elastic, elastic_later)
    for name, part in (("quick", 1 / 2), ("quicker", 1 / 6), ("quickest", 1 / 20)):
        yield Way(name, _slower(config, part), weights, elastic, elastic_later)


def cheap_ways(config: HorizonConfig, weights: Weights) -> Iterator[Way]:
    """From what saves most to what saves nothing, and BACE-Pipe."""
    for name, part in (("cheapest", 4.0), ("cheap", 1.0), ("quick", 1 / 4), ("quickest", 1 / 32)):
        yield Way(name, _slower(config, part), weights, elastic, elastic_later)
    yield Way("bace", config, weights, as_bace, as_bace)


def cheapest_way(board: Board, within: float) -> Board:
    """The board after the first step of the cheapest way whose completion times are at most this part above those of
    the fastest."""
    config, weights = board.config, board.weights
    tried = [_tried(way, board) for way in cheap_ways(config, weights)]
    most_s = (1 + within) * min(played.jct_s for played, _ in tried)
    return min((each for each in tried if each[0].jct_s <= most_s), key=lambda each: each[0].bill_usd)[1]


def best_way(board: Board) -> Board:
    """The board after the first step of the best way; or, where the choice can be made for all jobs together, of the
    best plan that takes no more completion time than BACE-Pipe's decisions, or than that way if it does."""
    reference_s, played, first = _best_alone(board)
    together = chosen_jointly(board, first, max(reference_s, played.jct_s))
    return first if together is None else together


def _best_alone(board: Board) -> tuple[float, Outcome, Board]:
    """The first way that is as fast as asked, or the fastest, if none is: what it comes to, and the board after its
    first step; before them, the completion times that BACE-Pipe's decisions come to.

    Ways that are as fast but for a hair differ in what they cost. The main way leaves chains out where that is better.
    """
    config, weights = board.config, board.weights
    tried: list[tuple[Outcome, Board]] = []
    reference_s = math.inf
    for way in ways(config, weights):
        played, first = _tried(way, board)
        if way.name == "elastic" and config.stays_apart:
            played, first = _apart_or(way, board, played, first)
        tried.append((played, first))
        if way.name == "bace":
            reference_s = played.jct_s
        elif played.jct_s <= config.rollout_guard * reference_s and reference_s < math.inf:
            return reference_s, played, first
    fastest_s = min(played.jct_s for played, _ in tried)
    as_fast = [each for each in tried if each[0].jct_s <= config.rollout_alike * fastest_s]
    return (reference_s, *min(as_fast, key=lambda each: each[0].bill_s(weights)))


def as_bace_s(board: Board) -> float:
    """The completion times, in sum, that BACE-Pipe's decisions come to."""
    return _tried(next(ways(board.config, board.weights)), board)[0].jct_s


def _apart_or(way: Way, board: Board, played: Outcome, first: Board) -> tuple[Outcome, Board]:
    """What a way came to, or what it comes to where jobs stay in one region, if that is better by a part in time or
    money and no worse in the other but for a hair.

    A chain over thin links is slow for as long as its job runs; a job in one region may have to wait for it. Which is
    worth more depends on who ends when, and on who else could take what a chain would hold: a rollout tells. Where the
    first step is the same it still tells what the way is worth, as later ones need not make chains either.
    """
    gain, apart = board.config.apart_gain, _tried(replace(way, apart=True), board)
    slower_s, dearer_usd = apart[0].jct_s - played.jct_s, apart[0].bill_usd - played.bill_usd
    jct_s, bill_usd = played.jct_s, abs(played.bill_usd)
    is_quicker = slower_s < -gain * jct_s and dearer_usd <= _DEARER * bill_usd
    is_cheaper = dearer_usd < -gain * bill_usd and slower_s <= _SLOWER * jct_s
    return apart if is_quicker or is_cheaper else (played, first)


def _tried(way: Way, board: Board) -> tuple[Outcome, Board]:
    """What a way comes to, and the board after its first step."""
    first = board.clone()
    first.config, first.weights = way.config, way.weights
    if way.apart:
        _keep_apart(first)
    way.first(first)
    played = play(first.clone(), way.later, board.config.rollout_events)
    first.config, first.weights = board.config, board.weights
    if way.apart:
        for job_id, work in first.works.items():
            first.works[job_id] = replace(work, demand=board.works[job_id].demand)
    return played, first


def _keep_apart(board: Board) -> None:
    """Who stands in several regions may go on so."""
    for job_id, work in board.works.items():
        seat = board.seats.get(job_id)
        if seat is None or not seat.placement.cuts:
            board.works[job_id] = replace(work, demand=in_one_region(work.demand))


def _slower(config: HorizonConfig, part: float) -> HorizonConfig:
    """What saves so much more, or less, of what it costs in time."""
    return replace(
        config, most_slower=config.most_slower * part, most_slower_egress=config.most_slower_egress * part
    )


def _as_waiting(work: Work) -> WaitingJob:
    return WaitingJob(work.spec, max(1, round(work.steps)))
