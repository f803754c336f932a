"""What progress, liveness and reconciling ask and write beyond the repositories: guarded, and for many rows at once."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any, cast

from sqlalchemy import Table, and_, bindparam, delete, exists, func, not_, or_, select, union, update

from agents.protocol import ProcessState
from scheduler.job import JobState
from scheduler.placement import AllocationState
from service.db.reader import Reader
from service.db.records import JobRecord, NodeRecord, ProcessRecord
from service.db.session import Session
from service.db.tables import (
    AgentRow,
    AllocationRow,
    EventRow,
    HeldPortRow,
    IdempotencyRow,
    JobRow,
    LinkTestRow,
    NodeRow,
    ProcessRow,
)

_jobs = Reader(JobRecord, JobRow)
_SET_WAITING = (
    update(cast("Table", JobRow.__table__))
    .where(JobRow.job_id == bindparam("job"), JobRow.state == JobState.QUEUED.value)
    .values(reasons=bindparam("why", type_=JobRow.reasons.type), queue_position=bindparam("position"))
)
_nodes = Reader(NodeRecord, NodeRow)
_processes = Reader(ProcessRecord, ProcessRow)
# The sweeps, every second or so.
_SILENT = _nodes.select(
    NodeRow.state != "lost",
    NodeRow.agent_id.in_(
        select(AgentRow.agent_id).where(AgentRow.heartbeat_at_s < bindparam("heard_before_s"))
    ),
).order_by(NodeRow.node_id)
_DUE = (
    select(AllocationRow.job_id)
    .where(
        AllocationRow.state != AllocationState.ENDED.value,
        or_(
            and_(
                AllocationRow.state == AllocationState.STARTING.value,
                AllocationRow.created_at_s < bindparam("created_before_s"),
            ),
            not_(
                exists().where(
                    ProcessRow.allocation_id == AllocationRow.allocation_id,
                    ProcessRow.state.not_in(bindparam("ended", expanding=True)),
                )
            ),
        ),
    )
    .order_by(AllocationRow.job_id)
)
_REJECTED = _jobs.select(JobRow.state == JobState.REJECTED.value).order_by(
    JobRow.submitted_at_s, JobRow.job_id
)
# Every start.
_PORTS_HELD = union(
    select(HeldPortRow.port)
    .join(NodeRow, NodeRow.node_id == HeldPortRow.node_id)
    .where(NodeRow.address == bindparam("at")),
    select(LinkTestRow.port).where(LinkTestRow.address == bindparam("at"), LinkTestRow.ended_at_s.is_(None)),
)
_LAST_PORT = (
    select(AllocationRow.master_port)
    .where(AllocationRow.master_address == bindparam("at"))
    .order_by(AllocationRow.created_at_s.desc(), AllocationRow.allocation_id.desc())
    .limit(1)
)


def change_process(session: Session, process: ProcessRecord, **values: Any) -> bool:
    """Sets `values` if the row is still as `process` has it."""
    return _processes.change(session, process, **values)


def silent_nodes(session: Session, heard_before_s: float) -> list[NodeRecord]:
    """Nodes that are not lost yet and whose agent was heard last before that time, by id."""
    return _nodes.fetch(session, _SILENT, {"heard_before_s": heard_before_s})


def rejected_jobs(session: Session) -> list[JobRecord]:
    """Jobs that could not run on the cluster as it was, in order of submission."""
    return _jobs.fetch(session, _REJECTED)


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


@dataclass(frozen=True, slots=True)
class Waiting:
    """Why a queued job waits (Reason documents), and its place in the queue if it has one."""

    job_id: str
    reasons: list[dict[str, Any]]
    position: int | None


def set_waiting(session: Session, waits: Iterable[Waiting]) -> None:
    """Of jobs that are queued. Their version stays: nobody's `If-Match` fails because the queue moved."""
    rows = [{"job": wait.job_id, "why": wait.reasons, "position": wait.position} for wait in waits]
    if rows:
        session.execute(_SET_WAITING, rows)


def ports_held_at(session: Session, address: str) -> frozenset[int]:
    """Ports that are held on any node of that address, for a rendezvous or to measure a link: several nodes may be
    one machine."""
    return frozenset(session.scalars(_PORTS_HELD, {"at": address}))


def port_used_last_at(session: Session, address: str) -> int | None:
    """The rendezvous port of the newest allocation with its rank 0 at that address."""
    return session.scalar(_LAST_PORT, {"at": address})


def jobs_due(session: Session, *, created_before_s: float, ended_states: Collection[str]) -> list[str]:
    """Live jobs that may move without news: started before that time and not running, or all ended; by id."""
    parameters = {"created_before_s": created_before_s, "ended": sorted(ended_states)}
    return list(session.execute(_DUE, parameters).scalars())


def drop_old_keys(session: Session, before_s: float) -> None:
    """Forget Idempotency-Keys from before that time; their jobs stay."""
    session.execute(delete(IdempotencyRow).where(IdempotencyRow.created_at_s < before_s))
