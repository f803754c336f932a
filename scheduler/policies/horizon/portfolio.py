"""Several ways of deciding, each played to the end of the jobs now known; the first step of the best one is taken.

BACE-Pipe is one of them and the measure of all: what a way takes and costs counts in parts of what BACE-Pipe's
decisions would take and cost, so that no scale between seconds and dollars is needed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from scheduler.policies.horizon.board import Board
from scheduler.policies.horizon.config import HorizonConfig
from scheduler.policies.horizon.joint import chosen_jointly, may_choose_jointly
from scheduler.policies.horizon.rollout import Outcome, play
from scheduler.policies.horizon.scoring import keeps_limits
from scheduler.policies.horizon.ways import Way, bace_way, cheap_ways, ways
from scheduler.policies.narrowed import in_one_region

_LEAST_PART: Final = 0.1
"""A bill counts as this part of BACE-Pipe's at least: prices below zero are no reason to prefer a way without end."""

_NO_TIME_S: Final = 1e-3


@dataclass(frozen=True, slots=True)
class Tried:
    """A way of deciding, played: what it comes to, and the board after its first step."""

    played: Outcome
    first: Board
    broken: int
    """Jobs that would end on the seats of that board after their deadline, or above their budget."""


def best_way(board: Board, weight_jct: float) -> Board:
    """The board after the first step of the best way; or, where the choice can be made for all jobs together, of the
    best plan that takes no more completion time than BACE-Pipe's decisions, or than that way if it does."""
    begun = [_begun(way, board) for way in _all_ways(board)]
    together = may_choose_jointly(board)
    if not together and all(_is_alike(each.board, begun[0].board) for each in begun[1:]):
        return begun[0].back_on(board)
    tried = [_tried(each, board) for each in begun]
    best = _best_of(board, tried, weight_jct)
    if together:
        chosen = chosen_jointly(board, best.first, max(tried[0].played.jct_s, best.played.jct_s))
        return best.first if chosen is None else chosen
    return best.first


def cheapest_way(board: Board, within: float) -> Board:
    """The board after the first step of the cheapest way whose completion times are at most this part above those of
    the fastest."""
    every = cheap_ways(board.config, board.weights)
    tried = _keeping_limits([_tried(_begun(way, board), board) for way in every])
    most_s = (1 + within) * min(each.played.jct_s for each in tried)
    fast = [each for each in tried if each.played.jct_s <= most_s]
    return min(fast, key=lambda each: each.played.bill_usd).first


def as_bace_s(board: Board) -> float:
    """The completion times, in sum, that BACE-Pipe's decisions come to."""
    return _tried(_begun(bace_way(board.config, board.weights), board), board).played.jct_s


def _best_of(board: Board, tried: list[Tried], weight_jct: float) -> Tried:
    """The way that loses least of those that are no slower than BACE-Pipe, the first of them, and break no limit that
    another keeps. What comes later in the portfolio must be better by a hair, or jobs would move to and fro."""
    config, reference = board.config, tried[0]
    hurry, most_s = _hurry(board), _slower_by(weight_jct) * reference.played.jct_s
    best, best_loss = None, math.inf
    tried = _keeping_limits(tried)
    for each in tried:
        loss = loss_of(each.played, reference.played, weight_jct, config, hurry)
        if each.played.jct_s <= most_s and loss < best_loss - config.rollout_hair:
            best, best_loss = each, loss
    return best or min(tried, key=lambda each: each.played.jct_s)


def _keeping_limits(tried: list[Tried]) -> list[Tried]:
    """Those that break the fewest."""
    fewest = min(each.broken for each in tried)
    return [each for each in tried if each.broken == fewest]


def loss_of(
    played: Outcome, reference: Outcome, weight_jct: float, config: HorizonConfig, hurry: float = 1.0
) -> float:
    """How much worse than the reference: the logarithms of the ratios of completion times, electricity or rent, and
    egress, weighted. At an equal weight of time and cost the first counts once, or `hurry` times."""
    holding, reference_usd = played.holding_usd, reference.holding_usd
    cost = 0.0
    if reference_usd > 0:
        cost += config.rollout_electricity * math.log(max(_LEAST_PART, holding / reference_usd))
        egress = (reference_usd + played.egress_usd) / (reference_usd + reference.egress_usd)
        cost += config.rollout_egress * math.log(egress)
    time = math.log(max(_NO_TIME_S, played.jct_s) / max(_NO_TIME_S, reference.jct_s))
    return 2 * (weight_jct * hurry * time + (1 - weight_jct) * cost)


def _hurry(board: Board) -> float:
    """How often the completion times of the known jobs count.

    A rollout knows the jobs that are there. Where all GPUs are asked for, those that come while these are served wait
    for what these take, and in a steady state they are as many (Little's law): there a second saved saves another.
    """
    config = board.config
    crowded = min(1.0, max(0.0, board.pressure() - config.full_pressure) / config.full_pressure)
    return 1.0 + config.rollout_hurry * crowded


def _slower_by(weight_jct: float) -> float:
    """What a way may take at most of BACE-Pipe's completion times."""
    if weight_jct >= 0.5:
        return 1.0
    return 0.5 / weight_jct if weight_jct > 0 else math.inf


def _all_ways(board: Board) -> Iterator[Way]:
    """BACE-Pipe, then all others; the main way without new chains as well.

    A chain over thin links is slow for as long as its job runs; a job in one region may have to wait for it. Which is
    worth more depends on who ends when, and on who else could take what a chain would hold: a rollout tells.
    """
    config, weights = board.config, board.weights
    yield bace_way(config, weights)
    for number, way in enumerate(ways(config, weights)):
        yield way
        if number == 0 and config.stays_apart:
            yield replace(way, apart=True)


@dataclass(frozen=True, slots=True)
class _Begun:
    """A way of deciding, and the board after its first step, as that way sees it."""

    way: Way
    board: Board

    def back_on(self, before: Board) -> Board:
        """The same as whoever chooses between ways sees it."""
        board = self.board
        board.config, board.weights = before.config, before.weights
        if self.way.apart:
            for job_id, work in board.works.items():
                board.works[job_id] = replace(work, demand=before.works[job_id].demand)
        return board


def _begun(way: Way, before: Board) -> _Begun:
    board = before.clone()
    board.decide_by(way.config, way.weights)
    if way.apart:
        _keep_apart(board)
    way.first(board)
    return _Begun(way, board)


def _is_alike(one: Board, other: Board) -> bool:
    """Whether all jobs stand, or wait, alike."""
    return one.seats.keys() == other.seats.keys() and all(
        seat.placement == other.seats[job_id].placement for job_id, seat in one.seats.items()
    )


def _tried(begun: _Begun, before: Board) -> Tried:
    played = play(begun.board.clone(), begun.way.later, before.config.rollout_events)
    first = begun.back_on(before)
    broken = sum(not keeps_limits(first.works[job_id], seat, first) for job_id, seat in first.seats.items())
    return Tried(played, first, broken)


def _keep_apart(board: Board) -> None:
    """Who stands in several regions may go on so."""
    for job_id, work in board.works.items():
        seat = board.seats.get(job_id)
        if seat is None or not seat.placement.cuts:
            board.works[job_id] = replace(work, demand=in_one_region(work.demand))
