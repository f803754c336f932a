"""From a board to a plan: what changed for each job, and why, in words."""

from __future__ import annotations

from scheduler.evaluate import evaluate
from scheduler.options import Demand
from scheduler.plan import Decision, Hold, Move, Preempt, Reject, Start
from scheduler.policies.horizon.board import Board
from scheduler.policies.horizon.limits import at_risk, missed_reason
from scheduler.policies.horizon.options import best_option
from scheduler.policies.horizon.queue import in_turn, shortest_first, waited_s
from scheduler.policies.horizon.work import Seat, Work
from scheduler.policies.proposal import (
    cuts_sentence,
    plural,
    prices_sentence,
    schedule_sentence,
    sentence,
)
from scheduler.policies.queueing import QueueRound
from scheduler.reasons import Reason, ReasonCode
from scheduler.snapshot import WaitingJob
from scheduler.units import format_duration, format_time

Told = dict[tuple[Demand, bool], tuple[Reason, ...]]
"""What jobs with a demand lack, for those that have not run before and those that have."""


def decisions(board: Board, waiting: dict[str, WaitingJob], round_: QueueRound) -> list[Decision]:
    """Starts and verdicts for the jobs that wait, then what changes for running ones. Order: starts, then the queue."""
    made: list[Decision] = [
        _start(board, board.works[job_id], board.seats[job_id])
        for job_id in sorted(waiting)
        if job_id in board.seats
    ]
    round_.started = len(made)
    position = 0
    told: Told = {}
    for work in in_turn(shortest_first(board), board):
        job = waiting.get(work.job_id)
        if job is None:
            continue
        position += 1
        made.append(Hold(work.job_id, position, _held(board, work, job, round_, told)))
    round_.held = position
    for job_id, work in sorted(board.works.items()):
        if work.seat is None:
            continue
        seat = board.seats.get(job_id)
        if seat is None:
            made.append(Preempt(job_id, "A job that needs less time gets its place; it goes on afterwards."))
        elif seat is not work.seat:
            made.append(
                Move(
                    job_id,
                    seat.placement,
                    seat.iteration_s,
                    _why(board, work, seat),
                    seat.transfers,
                )
            )
    return made


def rejected(job_id: str, job: WaitingJob, work: Work, round_: QueueRound) -> Reject | None:
    """The refusal of a job that could not run here if everything were free; None if it could."""
    never = round_.never(job, work.demand)
    return Reject(job_id, never) if never else None


def _held(board: Board, work: Work, job: WaitingJob, round_: QueueRound, told: Told) -> tuple[Reason, ...]:
    """Why a job waits, the nearest cause first. Jobs that ask for the same lack the same: it is found out once."""
    risks = at_risk(board, work)
    if risks:
        return risks
    kept = board.kept
    key = (work.demand, job.generation > 1)
    lacking = told.get(key)
    if lacking is None:
        lacking = told[key] = _passed_over(board, work) or round_.reasons(job, work.demand)
    if work.misses:
        lacking = (missed_reason(work), *lacking)
    if kept is None:
        return lacking
    head = kept.work.job_id
    where = f"{kept.seat.placement.describe()} from {format_time(round(kept.begins_s))} on"
    if work.job_id == head:
        detail = f"it has waited for {format_duration(waited_s(work, board))}: {where}, by forecast, is kept for it"
        return (Reason(ReasonCode.PLACE_KEPT, detail), *lacking)
    if best_option(work, board, None) is not None:
        detail = f"it would fit now, but {head} has waited too long, and {where} is kept for that one"
        return (Reason(ReasonCode.KEPT_FOR_ANOTHER, detail),)
    return lacking


def _passed_over(board: Board, work: Work) -> tuple[Reason, ...]:
    """That a job would fit, but waits all the same: only the portfolio decides so. Empty if it is not so."""
    if board.kept is not None or len(board.works) > board.config.rollout_jobs:
        return ()
    option = best_option(work, board, None)
    if option is None:
        return ()
    where = f"it would fit over {option.seat.placement.describe()}"
    detail = f"{where}, but by forecast jobs end sooner or cost less if it waits for another place"
    return (Reason(ReasonCode.BETTER_SOON, detail),)


def _start(board: Board, work: Work, seat: Seat) -> Start:
    return Start(work.job_id, seat.placement, seat.iteration_s, _why(board, work, seat), seat.transfers)


def _why(board: Board, work: Work, seat: Seat) -> str:
    placement = seat.placement
    evaluation = evaluate(work.spec, board.cluster, placement.segments, placement.cuts)
    most = max((each.most for each in work.demand.candidates), default=placement.stages)
    stages = f"{plural(placement.stages, 'stage')} of at most {most}"
    return sentence(
        "its deadline cannot be kept any more" if work.misses else None,
        f"{stages} over {placement.describe()}: the least of its time, of what it takes from others and of its bill",
        cuts_sentence(evaluation),
        schedule_sentence(evaluation),
        prices_sentence(board.world, placement.regions),
    )
