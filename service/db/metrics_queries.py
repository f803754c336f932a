"""Sums that the metrics show: read by the leader every few seconds, so each is one statement."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from scheduler.job import FINAL_JOB_STATES, JobState
from service.db.tables import AgentRow, EventRow, JobRow, LedgerRow, NodeRow, StepSeriesRow

_FINAL = [state.value for state in FINAL_JOB_STATES]
_QUEUED = JobState.QUEUED.value
_RUNNING = JobState.RUNNING.value
KWH_KINDS = ("electricity",)


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
    rows = session.execute(
        select(JobRow.project, JobRow.state, func.count())
        .where(JobRow.state.not_in(_FINAL))
        .group_by(JobRow.project, JobRow.state)
    )
    return [(project, state, count) for project, state, count in rows]


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
    rows = session.execute(
        select(JobRow.project, func.min(JobRow.submitted_at_s))
        .where(JobRow.state == _QUEUED)
        .group_by(JobRow.project)
    )
    return [(project, submitted_s) for project, submitted_s in rows]


def reasons_of_waiting(session: Session) -> list[list[dict[str, object]]]:
    """The reasons of every waiting job."""
    return list(session.scalars(select(JobRow.reasons).where(JobRow.state == _QUEUED)))


def oldest_heartbeats(session: Session) -> list[tuple[str, float]]:
    """(region, oldest heartbeat of a node there that is not lost)."""
    rows = session.execute(
        select(NodeRow.region, func.min(AgentRow.heartbeat_at_s))
        .join(AgentRow, AgentRow.agent_id == NodeRow.agent_id)
        .where(NodeRow.state != "lost")
        .group_by(NodeRow.region)
    )
    return [(region, heard_s) for region, heard_s in rows]


def last_bill(session: Session) -> int:
    """The number of the newest row of the ledger."""
    return session.scalar(select(func.max(LedgerRow.seq))) or 0


def billed(session: Session, after_seq: int, to_seq: int) -> list[BilledTotal]:
    """Totals of the rows numbered in (after_seq, to_seq]."""
    rows = session.execute(
        select(
            LedgerRow.region,
            LedgerRow.project,
            LedgerRow.kind,
            func.sum(LedgerRow.quantity),
            func.sum(LedgerRow.amount_usd),
            func.count() - func.count(LedgerRow.price),
        )
        .where(LedgerRow.seq > after_seq, LedgerRow.seq <= to_seq)
        .group_by(LedgerRow.region, LedgerRow.project, LedgerRow.kind)
    )
    return [BilledTotal(*row) for row in rows]


def job_events(session: Session, after_seq: int, to_seq: int, kinds: Collection[str]) -> list[JobEvent]:
    """Moves of jobs among the events numbered in (after_seq, to_seq], oldest first."""
    rows = session.execute(
        select(
            EventRow.kind,
            EventRow.data,
            JobRow.submitted_at_s,
            JobRow.first_started_at_s,
            JobRow.finished_at_s,
        )
        .join(JobRow, JobRow.job_id == EventRow.object_id)
        .where(
            EventRow.seq > after_seq,
            EventRow.seq <= to_seq,
            EventRow.object_kind == "job",
            EventRow.kind.in_(kinds),
        )
        .order_by(EventRow.seq)
    )
    return [JobEvent(*row) for row in rows]
