"""Sums that the metrics show: read by the leader every few seconds, so each is one statement."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from sqlalchemy import bindparam, func, select

from scheduler.job import FINAL_JOB_STATES, JobState
from service.db.session import Session
from service.db.tables import AgentRow, EventRow, JobRow, LedgerRow, NodeRow, StepSeriesRow

_FINAL = [state.value for state in FINAL_JOB_STATES]
_QUEUED = JobState.QUEUED.value
_RUNNING = JobState.RUNNING.value
KWH_KINDS = ("electricity",)
# Built once: the leader asks all of them every few seconds.
_UNFINISHED = (
    select(JobRow.project, JobRow.state, func.count())
    .where(JobRow.state.not_in(_FINAL))
    .group_by(JobRow.project, JobRow.state)
)
_OLDEST_WAITING = (
    select(JobRow.project, func.min(JobRow.submitted_at_s))
    .where(JobRow.state == _QUEUED)
    .group_by(JobRow.project)
)
_REASONS = select(JobRow.reasons).where(JobRow.state == _QUEUED)
_OLDEST_HEARTBEATS = (
    select(NodeRow.region, func.min(AgentRow.heartbeat_at_s))
    .join(AgentRow, AgentRow.agent_id == NodeRow.agent_id)
    .where(NodeRow.state != "lost")
    .group_by(NodeRow.region)
)
_LAST_BILL = select(func.max(LedgerRow.seq))
_BILLED = (
    select(
        LedgerRow.region,
        LedgerRow.project,
        LedgerRow.kind,
        func.sum(LedgerRow.quantity),
        func.sum(LedgerRow.amount_usd),
        func.count() - func.count(LedgerRow.price),
    )
    .where(LedgerRow.seq > bindparam("after"), LedgerRow.seq <= bindparam("until"))
    .group_by(LedgerRow.region, LedgerRow.project, LedgerRow.kind)
)
_JOB_EVENTS = (
    select(
        EventRow.kind,
        EventRow.data,
        JobRow.submitted_at_s,
        JobRow.first_started_at_s,
        JobRow.finished_at_s,
    )
    .join(JobRow, JobRow.job_id == EventRow.object_id)
    .where(
        EventRow.seq > bindparam("after"),
        EventRow.seq <= bindparam("until"),
        EventRow.object_kind == "job",
        EventRow.kind.in_(bindparam("kinds", expanding=True)),
    )
    .order_by(EventRow.seq)
)


@dataclass(frozen=True, slots=True)
class BilledTotal:
    """What the ledger holds of one kind, region and project in rows above a number."""

    region: str
    project: str
    kind: str
    quantity: float
    amount_usd: float
    unpriced: int


@dataclass(frozen=True, slots=True)
class JobEvent:
    """A move of a job, with the times that its histograms need."""

    kind: str
    data: dict[str, object]
    submitted_at_s: float
    first_started_at_s: float | None
    finished_at_s: float | None


def unfinished_by_project(session: Session) -> list[tuple[str, str, int]]:
    """(project, state, jobs)."""
    return [(project, state, count) for project, state, count in session.execute(_UNFINISHED)]


def lateness_of_running(session: Session) -> list[tuple[str, int, int, int]]:
    """(project, largest drift, largest bound, updates taken back) of what runs and updates within a step."""
    rows = session.execute(
        select(
            JobRow.project,
            func.max(StepSeriesRow.drift),
            func.max(StepSeriesRow.drift_bound),
            func.sum(StepSeriesRow.rolled_back),
        )
        .join(StepSeriesRow, StepSeriesRow.job_id == JobRow.job_id)
        .where(
            JobRow.state == _RUNNING,
            StepSeriesRow.generation == JobRow.generation,
            StepSeriesRow.drift.is_not(None),
        )
        .group_by(JobRow.project)
    )
    return [
        (project, drift or 0, bound or 0, int(rolled_back or 0))
        for project, drift, bound, rolled_back in rows
    ]


def oldest_waiting(session: Session) -> list[tuple[str, float]]:
    """(project, submission of the job that waits longest)."""
    return [(project, submitted_s) for project, submitted_s in session.execute(_OLDEST_WAITING)]


def reasons_of_waiting(session: Session) -> list[list[dict[str, object]]]:
    """The reasons of every waiting job."""
    return list(session.scalars(_REASONS))


def oldest_heartbeats(session: Session) -> list[tuple[str, float]]:
    """(region, oldest heartbeat of a node there that is not lost)."""
    return [(region, heard_s) for region, heard_s in session.execute(_OLDEST_HEARTBEATS)]


def last_bill(session: Session) -> int:
    """The number of the newest row of the ledger."""
    return session.scalar(_LAST_BILL) or 0


def billed(session: Session, after_seq: int, to_seq: int) -> list[BilledTotal]:
    """Totals of the rows numbered in (after_seq, to_seq]."""
    return [BilledTotal(*row) for row in session.execute(_BILLED, {"after": after_seq, "until": to_seq})]


def job_events(session: Session, after_seq: int, to_seq: int, kinds: Collection[str]) -> list[JobEvent]:
    """Moves of jobs among the events numbered in (after_seq, to_seq], oldest first."""
    parameters = {"after": after_seq, "until": to_seq, "kinds": list(kinds)}
    return [JobEvent(*row) for row in session.execute(_JOB_EVENTS, parameters)]
