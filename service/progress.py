"""How far a gang is: from what is stored of its processes to the next move of its job.

`advance` looks at the rows and makes every move that is due. It is level-triggered: whoever changed something
(a heartbeat, liveness, a cancellation, the reconciling loop) calls it, and calling it again changes nothing.

    QUEUED → STARTING (the applier) → RUNNING (all ready) → SUCCEEDED (all ended well, all steps reported)
    a failure, a lost node, a cancellation, a plan → STOPPING (nothing desired) → all ended: everything is given back
        → QUEUED again with its checkpoint (for what a plan has promised it, if it was moved), or FAILED with the
          reason, or CANCELLED
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from agents.protocol import ProcessState
from scheduler.job import FINAL_JOB_STATES, LIVE_JOB_STATES, JobState
from scheduler.placement import AllocationState
from scheduler.reasons import ReasonCode
from service import causes, ledger, placements
from service.db import control_queries
from service.db.records import AllocationRecord, JobRecord, ProcessRecord
from service.db.repositories import allocations, jobs, leader, promises
from service.db.scope import EVERYTHING
from service.db.session import Session
from service.errors import ConflictError, NotFoundError
from service.lifecycle import ENDED_PROCESS_STATES, Moment, move_allocation, move_job
from service.reason_documents import place_promised, plan_pending, preempted
from service.reservations import held_links
from service.settings import Settings

MAX_BACKOFF_S = 600.0
LATE_REPORT_HEARTBEATS = 3


@dataclass(frozen=True, slots=True)
class Rules:
    """What the settings say about patience and retries."""

    max_retries: int
    retry_backoff_s: float
    start_timeout_s: float
    late_report_s: float
    """Reports may trail the end of their process by so much: a few heartbeats."""

    @classmethod
    def of(cls, settings: Settings, heartbeat_interval_s: float) -> Rules:
        """`heartbeat_interval_s`: as agents are told now."""
        return cls(
            max_retries=settings.max_retries,
            retry_backoff_s=settings.retry_backoff_s,
            start_timeout_s=settings.start_timeout_s,
            late_report_s=LATE_REPORT_HEARTBEATS * heartbeat_interval_s,
        )

    def backoff_s(self, retries: int) -> float:
        """Before the n-th retry: doubles with each, within a bound."""
        return min(MAX_BACKOFF_S, self.retry_backoff_s * 2.0 ** (retries - 1))


def advance(session: Session, job_id: str, moment: Moment, rules: Rules) -> JobRecord:
    """Make every move of the job that is due; the job as it is then. Raises NotFoundError."""
    job = _get(session, job_id)
    while JobState(job.state) in LIVE_JOB_STATES:
        moved = _next_move(session, job, moment, rules)
        if moved is None:
            break
        job = moved
    return job


def request_cancel(session: Session, job_id: str, moment: Moment, rules: Rules) -> JobRecord:
    """Cancel at any edge of a job's life: nothing of it is launched from now on, and in the end nothing is held.

    A waiting job ends at once; a live one stops first. Cancelling again changes nothing. Raises ConflictError for a
    job that has ended otherwise.
    """
    job = _get(session, job_id)
    state = JobState(job.state)
    if state is JobState.CANCELLED or job.cancel_requested:
        return job
    if state is JobState.REJECTED:  # it would be looked at again when the cluster grows: take it back first
        job, state = move_job(session, job, JobState.QUEUED, moment), JobState.QUEUED
    if state in FINAL_JOB_STATES:
        raise ConflictError(f"job {job_id} has already {state.value}: there is nothing to cancel")
    if promises.drop(session, job_id) or state is JobState.QUEUED:
        leader.capacity_changed(session)
    if state is JobState.QUEUED:
        return move_job(
            session,
            job,
            JobState.CANCELLED,
            moment,
            cancel_requested=True,
            finished_at_s=moment.at_s,
            queue_position=None,
            reasons=[],
        )
    jobs.change(session, job, cancel_requested=True)
    return advance(session, job_id, moment, rules)


def stop(
    session: Session, job: JobRecord, cause: str, moment: Moment, *, why: str | None = None
) -> JobRecord:
    """Tell a starting or running gang to end, and remember the cause, and why where somebody decided it."""
    allocation = _live_allocation(session, job)
    allocations.no_longer_desired(session, allocation.allocation_id)
    data = {"cause": cause} if why is None else {"cause": cause, "why": why}
    move_allocation(
        session, allocation, AllocationState.STOPPING, moment, data=data, stop_cause=cause, stop_why=why
    )
    return move_job(session, job, JobState.STOPPING, moment, data=data, stop_cause=cause)


def reopen_rejected(session: Session, moment: Moment) -> None:
    """Capacity was added: jobs that could never run on the cluster as it was are looked at again."""
    for job in control_queries.rejected_jobs(session):
        move_job(session, job, JobState.QUEUED, moment, finished_at_s=None, reasons=[])


def _next_move(session: Session, job: JobRecord, moment: Moment, rules: Rules) -> JobRecord | None:
    allocation = _live_allocation(session, job)
    processes = allocations.processes_of(session, allocation.allocation_id)
    if job.state == JobState.STOPPING:
        if all(process.state in ENDED_PROCESS_STATES for process in processes):
            return _settle(session, job, allocation, processes, moment, rules)
        return None
    if job.cancel_requested:
        return stop(session, job, causes.CANCELLED, moment)
    failure = causes.root_failure(processes, None)
    if failure is not None:
        return stop(session, job, failure.cause.name, moment)
    if job.state == JobState.STARTING:
        return _starting(session, job, allocation, processes, moment, rules)
    return _running(session, job, allocation, processes, moment, rules)


def _starting(
    session: Session,
    job: JobRecord,
    allocation: AllocationRecord,
    processes: Sequence[ProcessRecord],
    moment: Moment,
    rules: Rules,
) -> JobRecord | None:
    # A short job's first ranks may have ended well before anybody heard that they were ready.
    if all(process.state == ProcessState.READY or _ended_well(process) for process in processes):
        move_allocation(session, allocation, AllocationState.RUNNING, moment, running_at_s=moment.at_s)
        _state_has_arrived(session, allocation)
        return move_job(session, job, JobState.RUNNING, moment)
    if moment.at_s - allocation.created_at_s > rules.start_timeout_s:
        return stop(session, job, causes.START_TIMEOUT, moment)
    return None


def _state_has_arrived(session: Session, allocation: AllocationRecord) -> None:
    """Whoever is up has read its state: the bandwidth on which that travelled is free again."""
    if allocation.transfers:
        placement = placements.from_document(allocation.placement)
        kept = held_links(placement, (), allocation.project, allocation.allocation_id)
        allocations.hold_links(session, allocation.allocation_id, kept)
        leader.capacity_changed(session)


def _running(
    session: Session,
    job: JobRecord,
    allocation: AllocationRecord,
    processes: Sequence[ProcessRecord],
    moment: Moment,
    rules: Rules,
) -> JobRecord | None:
    if not all(_ended_well(process) for process in processes):
        return None
    if job.reported_steps >= job.declared_steps:
        _give_back(session, allocation, moment)
        return move_job(session, job, JobState.SUCCEEDED, moment, finished_at_s=moment.at_s, reasons=[])
    ended_s = control_queries.last_process_end_s(session, [process.key for process in processes])
    if ended_s is not None and moment.at_s - ended_s > rules.late_report_s:
        return stop(session, job, causes.ENDED_EARLY, moment)
    return None


def _settle(
    session: Session,
    job: JobRecord,
    allocation: AllocationRecord,
    processes: Sequence[ProcessRecord],
    moment: Moment,
    rules: Rules,
) -> JobRecord:
    """Every process of a stopping gang has ended: give back what it held and say where its job goes from here."""
    _give_back(session, allocation, moment)
    end: dict[str, Any] = {"finished_at_s": moment.at_s, "queue_position": None}
    if job.cancel_requested:
        return move_job(session, job, JobState.CANCELLED, moment, reasons=[], **end)
    if job.reported_steps >= job.declared_steps and all(_ended_well(process) for process in processes):
        promises.drop(session, job.job_id)  # it was to be moved, and has come to its end instead
        return move_job(session, job, JobState.SUCCEEDED, moment, reasons=[], stop_cause=None, **end)
    failure = causes.root_failure(processes, job.stop_cause)
    if failure is None:
        reasons = [_why_it_waits(session, job, allocation)]
        return _requeue(session, job, moment, retries=job.retries, reasons=reasons)
    # Retries are counted since the last progress: a long job may lose many nodes in its life.
    retries = 1 if job.checkpoint_step >= allocation.first_step else job.retries + 1
    most_retries = _most_retries(failure.cause, rules)
    if retries > most_retries:
        data = {"cause": failure.cause.name, "kind": failure.cause.kind.value}
        reasons = [failure.reason()]
        return move_job(
            session,
            job,
            JobState.FAILED,
            moment,
            data=data,
            reasons=reasons,
            stop_cause=failure.cause.name,
            **end,
        )
    backoff_s = rules.backoff_s(retries)
    waits = {
        "code": ReasonCode.RETRY_BACKOFF.value,
        "detail": f"retry {retries} of {most_retries}, {backoff_s:g} s after: {failure.detail}",
        "region": failure.region,
    }
    return _requeue(
        session,
        job,
        moment,
        retries=retries,
        reasons=[waits, failure.reason()],
        not_before_s=moment.at_s + backoff_s,
        stop_cause=failure.cause.name,
    )


def _most_retries(cause: causes.Cause, rules: Rules) -> int:
    return rules.max_retries if cause.most_retries is None else min(cause.most_retries, rules.max_retries)


def _why_it_waits(session: Session, job: JobRecord, allocation: AllocationRecord) -> dict[str, Any]:
    """Of a job that was stopped for a reason that is no failure."""
    promised = promises.of_jobs(session, [job.job_id]).get(job.job_id)
    if promised is not None:
        return place_promised(placements.from_document(promised.placement).describe())
    if job.stop_cause == causes.PREEMPTED and allocation.stop_why is not None:
        return preempted(allocation.stop_why)
    return plan_pending(f"stopped ({job.stop_cause})")


def _requeue(session: Session, job: JobRecord, moment: Moment, *, retries: int, **changes: Any) -> JobRecord:
    # Steps after the checkpoint are run again, and reported again in the place of the first.
    return move_job(
        session,
        job,
        JobState.QUEUED,
        moment,
        data={"cause": job.stop_cause, "retries": retries, "checkpoint_step": job.checkpoint_step},
        retries=retries,
        reported_steps=job.checkpoint_step,
        **changes,
    )


def _give_back(session: Session, allocation: AllocationRecord, moment: Moment) -> None:
    """The end of an allocation: billed to the last second, and its GPUs, port and bandwidth free again."""
    leader.capacity_changed(session)
    # Servers' clocks differ a little: one that is ahead may have begun it, or billed it, beyond this moment.
    ended_s = max(moment.at_s, allocation.created_at_s, allocation.billed_until_s or 0.0)
    billed = ledger.bill(session, allocation, until_s=ended_s)
    move_allocation(session, billed, AllocationState.ENDED, moment, ended_at_s=ended_s)
    allocations.release(session, allocation.allocation_id)


def _ended_well(process: ProcessRecord) -> bool:
    return process.state == ProcessState.EXITED and process.exit_code == 0


def _get(session: Session, job_id: str) -> JobRecord:
    job = jobs.get(session, EVERYTHING, job_id)
    if job is None:
        raise NotFoundError(f"there is no job {job_id}")
    return job


def _live_allocation(session: Session, job: JobRecord) -> AllocationRecord:
    allocation = allocations.live_of_job(session, job.job_id)
    if allocation is None:
        raise ConflictError(f"job {job.job_id} is {job.state} but holds no allocation: its rows disagree")
    return allocation
