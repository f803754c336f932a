"""The life of jobs, allocations, processes and nodes: every move of any of them is made here, and leaves an event.

A move checks the table, then changes the row only if it still is as the caller saw it (its version grows), and
writes an event row `<object>.<target>` with `from`, `to` and the new version in the same transaction. The last
event of an object therefore tells the state of its row, and the first has no `from`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from agents.protocol import ProcessState
from scheduler.job import JOB_TRANSITIONS, JobState
from scheduler.placement import ALLOCATION_TRANSITIONS, AllocationState
from service.db.control_queries import change_process
from service.db.records import AllocationRecord, JobRecord, NodeRecord, ProcessRecord
from service.db.repositories import allocations, cluster, events, jobs, leader
from service.db.session import Session
from service.db.tables import SHARED_PROJECT
from service.errors import ConflictError


class IllegalMoveError(ConflictError):
    """A move that its table does not have: a defect of the caller. Nothing was stored."""

    code = "illegal_transition"


class MovedMeanwhileError(ConflictError):
    """The row is no longer in the state in which the caller saw it. Nothing was stored; look again."""

    code = "moved_meanwhile"


class NodeState(StrEnum):
    """Whether a node may be planned on."""

    READY = "ready"
    CORDONED = "cordoned"
    LOST = "lost"


PENDING = "pending"
"""State of a process that no agent has spoken of yet."""
LOST = "lost"
"""State of a process whose node is lost, or whose agent knows nothing of it any more."""

ENDED_PROCESS_STATES = frozenset(
    {ProcessState.EXITED.value, ProcessState.STOPPED.value, ProcessState.FAILED_TO_START.value, LOST}
)

_ALIVE = frozenset({ProcessState.STARTING.value, ProcessState.READY.value})
PROCESS_TRANSITIONS: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        PENDING: _ALIVE | ENDED_PROCESS_STATES,
        ProcessState.STARTING.value: frozenset({ProcessState.READY.value}) | ENDED_PROCESS_STATES,
        ProcessState.READY.value: ENDED_PROCESS_STATES - {ProcessState.FAILED_TO_START.value},
        **{ended: frozenset() for ended in ENDED_PROCESS_STATES},
    }
)
NODE_TRANSITIONS: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        NodeState.READY.value: frozenset({NodeState.CORDONED.value, NodeState.LOST.value}),
        NodeState.CORDONED.value: frozenset({NodeState.READY.value}),
        NodeState.LOST.value: frozenset({NodeState.READY.value, NodeState.CORDONED.value}),
    }
)
_TABLES: Mapping[str, Mapping[str, frozenset[str]]] = MappingProxyType(
    {
        "job": {s.value: frozenset(t.value for t in ts) for s, ts in JOB_TRANSITIONS.items()},
        "allocation": {s.value: frozenset(t.value for t in ts) for s, ts in ALLOCATION_TRANSITIONS.items()},
        "process": PROCESS_TRANSITIONS,
        "node": NODE_TRANSITIONS,
    }
)


@dataclass(frozen=True, slots=True)
class Moment:
    """When something happens, by the server's clock, and who does it (a token's id, an agent's, or a loop's name)."""

    at_s: float
    actor: str = ""


def move_job(
    session: Session,
    job: JobRecord,
    target: JobState,
    moment: Moment,
    *,
    data: Mapping[str, Any] | None = None,
    **changes: Any,
) -> JobRecord:
    """Move a job and change other columns of its row with it; the record as it is now.

    Raises IllegalMoveError where the table has no such move, MovedMeanwhileError where the row is not as `job`.
    """
    _check("job", job.job_id, job.state, target)
    if not jobs.change(session, job, state=target.value, **changes):
        raise _moved("job", job.job_id)
    _record(session, "job", job.job_id, job.project, job.state, target, job.version + 1, moment, data)
    return replace(job, state=target.value, version=job.version + 1, **changes)


def move_allocation(
    session: Session,
    allocation: AllocationRecord,
    target: AllocationState,
    moment: Moment,
    *,
    data: Mapping[str, Any] | None = None,
    **changes: Any,
) -> AllocationRecord:
    """Move an allocation; errors as `move_job`."""
    name = allocation.allocation_id
    _check("allocation", name, allocation.state, target)
    if not allocations.change(session, allocation, state=target.value, **changes):
        raise _moved("allocation", name)
    version = allocation.version + 1
    data = {"job_id": allocation.job_id, **(data or {})}
    _record(session, "allocation", name, allocation.project, allocation.state, target, version, moment, data)
    return replace(allocation, state=target.value, version=version, **changes)


def move_process(
    session: Session,
    process: ProcessRecord,
    target: str,
    moment: Moment,
    *,
    data: Mapping[str, Any] | None = None,
    **changes: Any,
) -> ProcessRecord:
    """Move a process; errors as `move_job`."""
    _check("process", process.key, process.state, target)
    if not change_process(session, process, state=target, **changes):
        raise _moved("process", process.key)
    version = process.version + 1
    data = {"job_id": process.job_id, **(data or {})}
    _record(session, "process", process.key, process.project, process.state, target, version, moment, data)
    return replace(process, state=target, version=version, **changes)


def move_node(
    session: Session,
    node: NodeRecord,
    target: NodeState,
    moment: Moment,
    *,
    data: Mapping[str, Any] | None = None,
) -> NodeRecord:
    """Move a node, which makes earlier plans stale; errors as `move_job`."""
    _check("node", node.node_id, node.state, target)
    if not cluster.change_node(session, node, state=target.value):
        raise _moved("node", node.node_id)
    leader.capacity_changed(session)
    _record(session, "node", node.node_id, SHARED_PROJECT, node.state, target, node.version + 1, moment, data)
    return replace(node, state=target.value, version=node.version + 1)


def record_birth(
    session: Session, object_kind: str, object_id: str, state: str, project: str, moment: Moment, **data: Any
) -> None:
    """The event of a row that has just been inserted in its first state: its history begins there."""
    _record(session, object_kind, object_id, project, None, state, 1, moment, data)


def can_move_process(source: str, target: str) -> bool:
    """Whether the table of processes has the move (a late or repeated report asks for one that it has not)."""
    return target in PROCESS_TRANSITIONS[source]


def _check(object_kind: str, object_id: str, source: str, target: str) -> None:
    if target not in _TABLES[object_kind][source]:
        raise IllegalMoveError(f"{object_kind} {object_id} cannot go from {source} to {target}")


def _moved(object_kind: str, object_id: str) -> MovedMeanwhileError:
    return MovedMeanwhileError(f"{object_kind} {object_id} changed meanwhile: look again")


def _record(
    session: Session,
    object_kind: str,
    object_id: str,
    project: str,
    source: str | None,
    target: str,
    version: int,
    moment: Moment,
    data: Mapping[str, Any] | None,
) -> None:
    events.append(
        session,
        project=project,
        at_s=moment.at_s,
        kind=f"{object_kind}.{target}",
        object_kind=object_kind,
        object_id=object_id,
        actor=moment.actor,
        data={"from": source, "to": str(target), "version": version, **(data or {})},
    )
