"""What progress, liveness and reconciling ask and write beyond the repositories: guarded, and for many rows at once."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from sqlalchemy import func, select, update
from sqlalchemy.orm import Session

from agents.protocol import ProcessState
from scheduler.job import LIVE_JOB_STATES, JobState
from scheduler.placement import AllocationState
from service.db.reader import Reader
from service.db.records import JobRecord, NodeRecord, ProcessRecord
from service.db.scope import changed
from service.db.tables import AgentRow, AllocationRow, EventRow, JobRow, NodeRow, ProcessRow

_jobs = Reader(JobRecord, JobRow)
_nodes = Reader(NodeRecord, NodeRow)
_processes = Reader(ProcessRecord, ProcessRow)
_LIVE_ALLOCATIONS = select(AllocationRow.allocation_id).where(
    AllocationRow.state != AllocationState.ENDED.value
)


def change_process(session: Session, process: ProcessRecord, **values: Any) -> bool:
    """Sets `values` if the row is still as `process` has it."""
    return changed(
        session.execute(
            update(ProcessRow)
            .where(ProcessRow.key == process.key, ProcessRow.version == process.version)
            .values(**values, version=process.version + 1)
        )
    )


def live_processes_on(session: Session, node_ids: Collection[str]) -> list[ProcessRecord]:
    """Processes of these nodes whose allocation still holds something, by key."""
    return _processes.all(
        session,
        ProcessRow.node_id.in_(node_ids),
        ProcessRow.allocation_id.in_(_LIVE_ALLOCATIONS),
        order_by=[ProcessRow.key],
    )


def live_job_ids(session: Session) -> list[str]:
    """Jobs that hold an allocation, in order of id."""
    states = [state.value for state in LIVE_JOB_STATES]
    return list(
        session.scalars(select(JobRow.job_id).where(JobRow.state.in_(states)).order_by(JobRow.job_id))
    )


def silent_nodes(session: Session, heard_before_s: float) -> list[NodeRecord]:
    """Nodes that are not lost yet and whose agent was heard last before that time, by id."""
    silent = select(AgentRow.agent_id).where(AgentRow.heartbeat_at_s < heard_before_s)
    return _nodes.all(
        session, NodeRow.state != "lost", NodeRow.agent_id.in_(silent), order_by=[NodeRow.node_id]
    )


def rejected_jobs(session: Session) -> list[JobRecord]:
    """Jobs that could not run on the cluster as it was, in order of submission."""
    return _jobs.all(
        session,
        JobRow.state == JobState.REJECTED.value,
        order_by=[JobRow.submitted_at_s, JobRow.job_id],
    )


def regions_of_addresses(session: Session, addresses: Collection[str]) -> list[str]:
    """Regions with a node at one of these addresses: what stands on the same machines."""
    return list(
        session.scalars(
            select(NodeRow.region).where(NodeRow.address.in_(addresses)).distinct().order_by(NodeRow.region)
        )
    )


def last_process_end_s(session: Session, keys: Collection[str]) -> float | None:
    """When the last of these processes ended by itself; None while that is being stored in this transaction."""
    return session.scalar(
        select(func.max(EventRow.at_s)).where(
            EventRow.object_kind == "process",
            EventRow.object_id.in_(keys),
            EventRow.kind == f"process.{ProcessState.EXITED}",
        )
    )


def last_event_data(session: Session, object_kind: str, object_id: str) -> dict[str, Any]:
    """What the newest committed event of an object says; empty if it has none."""
    newest = (
        select(EventRow.data)
        .where(EventRow.object_kind == object_kind, EventRow.object_id == object_id)
        .order_by(EventRow.seq.desc())
        .limit(1)
    )
    return session.scalar(newest) or {}
