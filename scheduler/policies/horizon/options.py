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
from dataclasses import dataclass, replace
from typing import Final

from scheduler.evaluate import Evaluation
from scheduler.policies import bace
from scheduler.policies.horizon.board import CHEAPEST, FASTEST, Board
from scheduler.policies.horizon.config import StageChoice
from scheduler.policies.horizon.ladder import Ladder, ladders_of
from scheduler.policies.horizon.scoring import keeps_limits, score_of
from scheduler.policies.horizon.search import Origin, Search, Sketch
from scheduler.policies.horizon.work import UNLIMITED, Seat, Work, seat_of
from scheduler.restart import granted_transfers, restart_s

_MOST_BUILT: Final = 6
"""Candidates that one search builds; their estimates are close, so the first is nearly always the best."""


@dataclass(frozen=True, slots=True)
class Option:
    """A seat for a job, its score, and what the score is made of."""

    score_s: float
    seat: Seat
    run_s: float
    """From now until the job would end there."""
    restart_s: float
    """The part of it before the first step."""


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
    return _seated(Origin.of(work, board, seat), board, evaluation)


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
    wider = candidate.wider
    evaluation = board.world.place(
        origin.work.demand, candidate.shares, lambda crossings, need: [need * wider] * len(crossings)
    )
    return None if evaluation is None else _seated(origin, board, evaluation)


def _mixed(origin: Origin, board: Board) -> Option | None:
    """BACE-Pipe's placement for a job that finds none on GPUs of one type: it may stand on several."""
    demand = origin.work.demand
    if all(len(each.stage_counts.gpu_types) == 1 for each in demand.candidates):
        return None
    proposal = bace.place(demand, board.world)
    return None if proposal is None else _seated(origin, board, proposal.evaluation)


def _seated(origin: Origin, board: Board, evaluation: Evaluation) -> Option | None:
    """The seat that a placement is for the job, scored in full; None if its state cannot get there, or if it breaks the
    job's limits."""
    work, placement = origin.work, evaluation.placement
    transfers = granted_transfers(work.spec, origin.state, placement, board.residual)
    if transfers is None:
        return None
    before_s = origin.stopping_s
    if origin.restarts:
        before_s += restart_s(work.spec, board.cluster, placement, transfers)
    seat = seat_of(work.spec, board.cluster, evaluation, board.now_s + before_s, transfers)
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
