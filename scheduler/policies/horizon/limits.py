"""Deadlines and budgets as constraints: who is bound by them, who cannot keep them, and what becomes of it.

What a job declares is taken by its word here: nobody is refused because jobs tend to run longer. A limit binds while it
could be kept on an empty cluster at forecast prices. A job that could not even then, and never ran, is refused with the
numbers. One that has run goes on although its deadline is missed, and is stopped, or kept from starting again, when its
budget is used up.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from scheduler.options import Demands
from scheduler.plan import Preempt, Reject
from scheduler.policies.horizon.board import CHEAPEST, FASTEST, Board
from scheduler.policies.horizon.options import best_option
from scheduler.policies.horizon.scoring import end_and_bill, keeps_limits
from scheduler.policies.horizon.work import UNLIMITED, Limits, Work
from scheduler.reasons import Reason, ReasonCode
from scheduler.snapshot import RunningJob, Snapshot, WaitingJob
from scheduler.units import format_duration, format_time, format_usd


@dataclass(slots=True)
class Judged:
    """What is decided of jobs by their limits alone, before anybody is given a seat."""

    rejected: list[Reject] = field(default_factory=list)
    held: dict[str, Reason] = field(default_factory=dict)
    stopped: list[Preempt] = field(default_factory=list)


def bind(board: Board, snapshot: Snapshot) -> Judged:
    """Give every job on the board its limits, and take those off it that these leave nothing to decide about."""
    judged = Judged()
    jobs: list[WaitingJob | RunningJob] = [*snapshot.waiting, *snapshot.running]
    limited = [job for job in jobs if job.spec.job_id in board.works and _told(job) is not UNLIMITED]
    empty = board.emptied() if limited else board
    for job in limited:
        job_id = job.spec.job_id
        work = board.works[job_id] = replace(board.works[job_id], limits=_told(job))
        if isinstance(job, RunningJob):
            _bind_running(board, empty, work, judged)
        else:
            _bind_waiting(board, empty, work, job, judged)
    return judged


def at_risk(board: Board, work: Work) -> tuple[Reason, ...]:
    """What limits a job to wait that would fit on what is free now; empty if none does."""
    if (
        work.limits is UNLIMITED
        or best_option(work, board, None) is not None
        or best_option(replace(work, limits=UNLIMITED), board, None) is None
    ):
        return ()
    return (_reason(board, work, ReasonCode.DEADLINE_AT_RISK, ReasonCode.BUDGET_AT_RISK, "now"),)


def missed_reason(work: Work) -> Reason:
    """Says that a job goes on although its deadline is missed."""
    deadline = format_time(work.spec.deadline_s or 0.0)
    return Reason(ReasonCode.DEADLINE_MISSED, f"its deadline {deadline} cannot be kept any more; it goes on")


def _told(job: WaitingJob | RunningJob) -> Limits:
    """What the job's owner demands, less what it has cost."""
    spec = job.spec
    if spec.deadline_s is None and spec.budget_usd is None:
        return UNLIMITED
    present_usd = job.generation_usd if isinstance(job, RunningJob) else 0.0
    return Limits(
        math.inf if spec.deadline_s is None else spec.deadline_s,
        math.inf if spec.budget_usd is None else spec.budget_usd - job.spent_usd - present_usd,
    )


def _bind_running(board: Board, empty: Board, work: Work, judged: Judged) -> None:
    seat, spec = board.seats[work.job_id], work.spec
    if work.limits.left_usd <= 0 and work.movable and spec.budget_usd is not None:
        spent = format_usd(spec.budget_usd - work.limits.left_usd)
        why = f"Its budget of {format_usd(spec.budget_usd)} is used up: it has cost {spent}."
        judged.stopped.append(Preempt(work.job_id, why))
        board.evict(work.job_id)
        del board.works[work.job_id]
    elif not keeps_limits(work, seat, board) and best_option(work, empty, None) is None:
        board.works[work.job_id] = _unbound(work)


def _bind_waiting(board: Board, empty: Board, work: Work, job: WaitingJob, judged: Judged) -> None:
    # No region cools down for good: what a job could do there counts.
    lasting = replace(job, avoid_regions=frozenset())
    alone = replace(work, demand=Demands(board.residual.topology).of(lasting))
    if (
        best_option(alone, empty, None) is not None
        or best_option(replace(alone, limits=UNLIMITED), empty, None) is None
    ):
        return  # it can keep them, or it is not they that keep it waiting
    if job.generation == 1:
        codes = (ReasonCode.DEADLINE_UNMEETABLE, ReasonCode.BUDGET_TOO_SMALL)
        judged.rejected.append(Reject(work.job_id, (_reason(empty, alone, *codes, "alone on this cluster"),)))
        del board.works[work.job_id]
        return
    board.works[work.job_id] = _unbound(work)
    within_budget = replace(alone, limits=_without_deadline(work.limits))
    if best_option(within_budget, empty, None) is None:
        codes = (ReasonCode.BUDGET_EXHAUSTED, ReasonCode.BUDGET_EXHAUSTED)
        judged.held[work.job_id] = _reason(empty, within_budget, *codes, "even alone on this cluster")
        del board.works[work.job_id]


def _unbound(work: Work) -> Work:
    """A deadline that is missed binds no more."""
    return replace(work, limits=_without_deadline(work.limits), misses=work.spec.deadline_s is not None)


def _without_deadline(limits: Limits) -> Limits:
    return UNLIMITED if limits.left_usd == math.inf else replace(limits, until_s=math.inf)


def _reason(board: Board, work: Work, late: ReasonCode, dear: ReasonCode, when: str) -> Reason:
    """Which limit cannot be kept on a board, by how much."""
    limits, free = work.limits, replace(work, limits=UNLIMITED)
    ends, bills = [], []
    for lens in (FASTEST, CHEAPEST):
        option = best_option(free, replace(board, lens=lens), None)
        if option is not None:
            end_s, bill_usd = end_and_bill(work, option.seat, board)
            ends.append(end_s)
            bills.append(bill_usd)
    end_s, bill_usd = min(ends, default=math.inf), min(bills, default=math.inf)
    run_s, left_s = end_s - board.now_s, limits.until_s - board.now_s
    if bill_usd > limits.left_usd:
        detail = (
            f"{when} it would cost {format_usd(bill_usd)} more at least, at forecast prices; of its budget "
            f"{format_usd(max(0.0, limits.left_usd))} are left"
        )
        return Reason(dear, detail, needed=bill_usd, available=max(0.0, limits.left_usd))
    detail = (
        f"its deadline is {format_time(round(limits.until_s))}; {when} it would take {format_duration(run_s)}"
    )
    if run_s <= left_s:
        detail += ", but not within its budget"
    return Reason(late, detail, needed=run_s, available=max(0.0, left_s))
