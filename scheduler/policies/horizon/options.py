"""Where a job could stand, and what each place is worth: its time, what it takes from others, and its bill, in seconds.

    score = T·(1 + μ·G) + λ·(electricity, or rent) + λ'·(egress of cuts, state and data sets)

with T from now until the job ends there (stopping, restart and travelling state included), G its GPUs, μ what others
lose by a GPU-second, λ what a dollar is worth (`weights.py`). All numbers of stages in all regions are scored at once;
chains are searched where more stages than one region has may pay. What looks best is built and scored to the last digit
by the timeline, until nothing that is left looks better.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Final
from weakref import WeakKeyDictionary

from scheduler.allocator import Share
from scheduler.evaluate import Evaluation
from scheduler.options import Demand
from scheduler.policies import bace
from scheduler.policies.horizon.board import CHEAPEST, FASTEST, Board
from scheduler.policies.horizon.config import StageChoice
from scheduler.policies.horizon.ladder import Ladder, ladders_of
from scheduler.policies.horizon.scoring import keeps_limits, score_of
from scheduler.policies.horizon.search import Origin, Search, Sketch
from scheduler.policies.horizon.work import UNLIMITED, Option, Seat, Work, seat_of
from scheduler.restart import bytes_between, granted_for, restarting_s

_MOST_BUILT: Final = 6
"""Candidates that one search builds; their estimates are close, so the first is nearly always the best."""
_REMEMBERED_SEATS: Final = 1024
_SEATS: WeakKeyDictionary[Demand, dict[tuple[tuple[Share, ...], int], Seat | None]] = WeakKeyDictionary()


def best_option(work: Work, board: Board, seat: Seat | None, below_s: float = math.inf) -> Option | None:
    """The best seat on what is free now for a job that leaves `seat` (None: it waits).

    None if it fits nowhere, or nowhere with a score that looks lower than `below_s`, or nowhere within its deadline and
    its budget: where what suits it best breaks them, the fastest and the cheapest are tried.
    """
    found = _best(work, board, seat, below_s)
    if found is not None or work.limits is UNLIMITED or below_s < math.inf:
        return found
    for lens in (FASTEST, CHEAPEST):
        found = _best(work, replace(board, lens=lens), seat, math.inf)
        if found is not None:
            return replace(found, score_s=score_of(work, found.seat, board))
    return None


def option_on(work: Work, board: Board, seat: Seat | None, evaluation: Evaluation) -> Option | None:
    """What an evaluated placement is to a job that leaves `seat` (None: it waits); None if its state cannot get there,
    or if it breaks the job's limits."""
    return _seated(Origin.of(work, board, seat), board, seat_of(work.spec, board.cluster, evaluation, 0.0))


def several_options(work: Work, board: Board) -> list[Option]:
    """What a waiting job could choose between on what is free now: over numbers of stages, the best regions of each,
    and the best chains."""
    origin, found = Origin.of(work, board, None), list[Option]()
    for ladder in ladders_of(work.demand, board.cluster):
        for candidate in Search(origin, board, ladder).several():
            built = (_built(origin, board, each) for each in candidate.directions(work.demand.begins))
            found += [option for option in built if option is not None]
    return found


def _best(work: Work, board: Board, seat: Seat | None, below_s: float) -> Option | None:
    """The best option by one view of what counts. Ways of deciding often come to the same question: it is answered
    once."""
    key = (work, seat, below_s, board.now_s, board.weights_of(work), *board.room.state())
    if key not in board.found:
        board.found[key] = _searched(work, board, seat, below_s)
    return board.found[key]


def _searched(work: Work, board: Board, seat: Seat | None, below_s: float) -> Option | None:
    origin = Origin.of(work, board, seat)
    candidates = [
        candidate
        for ladder in ladders_of(work.demand, board.cluster)
        for candidate in _candidates(origin, board, ladder, below_s)
    ]
    best: Option | None = None
    for candidate in sorted(candidates, key=lambda each: each.score_s)[:_MOST_BUILT]:
        if best is not None and best.score_s <= candidate.score_s:
            break
        for each in candidate.directions(work.demand.begins):
            option = _built(origin, board, each)
            if option is not None and (best is None or option.score_s < best.score_s):
                best = option
    if best is None and below_s == math.inf:
        best = _mixed(origin, board)
    return best


def _built(origin: Origin, board: Board, candidate: Sketch) -> Option | None:
    """The seat of a candidate, scored in full; None if it does not fit or its state cannot get there."""
    seat = _seat_on(origin.work.demand, candidate, board)
    return None if seat is None else _seated(origin, board, seat)


def _seat_on(demand: Demand, candidate: Sketch, board: Board) -> Seat | None:
    """The place that a candidate is for every job with a demand, whenever it begins; made once for both."""
    known = _SEATS.setdefault(demand, {})
    key, wider = (candidate.shares, candidate.wider), candidate.wider
    if key not in known:
        evaluation = board.world.place(
            demand, candidate.shares, lambda crossings, need: [need * wider] * len(crossings)
        )
        if len(known) >= _REMEMBERED_SEATS:
            known.clear()
        known[key] = (
            None if evaluation is None else seat_of(demand.spec, board.cluster, evaluation, ready_s=0.0)
        )
    return known[key]


def _mixed(origin: Origin, board: Board) -> Option | None:
    """BACE-Pipe's placement for a job that finds none on GPUs of one type: it may stand on several."""
    demand = origin.work.demand
    if all(len(each.stage_counts.gpu_types) == 1 for each in demand.candidates):
        return None
    proposal = bace.place(demand, board.world)
    if proposal is None:
        return None
    return _seated(origin, board, seat_of(demand.spec, board.cluster, proposal.evaluation, ready_s=0.0))


def _seated(origin: Origin, board: Board, place: Seat) -> Option | None:
    """The seat that a place is for the job now, scored in full; None if its state cannot get there, or if it breaks the
    job's limits."""
    work = origin.work
    sent = bytes_between(work.spec, origin.state, place.state) if origin.state else {}
    transfers = granted_for(sent, place.placement, board.residual)
    if transfers is None:
        return None
    before_s = origin.stopping_s
    if origin.restarts:
        before_s += restarting_s(board.cluster, place.storage_s, transfers)
    seat = place.begun(board.now_s + before_s, transfers, board.cluster)
    if not keeps_limits(work, seat, board):
        return None
    return Option(score_of(work, seat, board), seat, board.remaining_s(work, seat), before_s)


def _candidates(origin: Origin, board: Board, ladder: Ladder, below_s: float) -> Iterable[Sketch]:
    """What a ladder offers below a score; where it is to be as many stages as there is room for, its highest rung that
    has room alone."""
    if board.config.stages is not StageChoice.MOST:
        return Search(origin, board, ladder).candidates(below_s)
    for rung in reversed(range(ladder.stages.size)):
        found = list(Search(origin, board, ladder.only(rung)).candidates(math.inf))
        if found:
            return [each for each in found if each.score_s < below_s]
    return ()
