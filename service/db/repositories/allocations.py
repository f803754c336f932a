"""Allocations, their processes, and what they hold."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, cast

from sqlalchemy import Table, and_, bindparam, delete, func, or_, select, update

from scheduler.job import LIVE_JOB_STATES, JobState
from scheduler.placement import AllocationState
from service.db.reader import Reader
from service.db.records import (
    AllocationRecord,
    HeldGpuRecord,
    HeldLinkRecord,
    HeldPortRecord,
    ProcessRecord,
)
from service.db.scope import Scope
from service.db.session import Session
from service.db.tables import AllocationRow, HeldGpuRow, HeldLinkRow, HeldPortRow, JobRow, ProcessRow

_allocations = Reader(AllocationRecord, AllocationRow)
_processes = Reader(ProcessRecord, ProcessRow)
_gpus = Reader(HeldGpuRecord, HeldGpuRow)
_links = Reader(HeldLinkRecord, HeldLinkRow)
_ports = Reader(HeldPortRecord, HeldPortRow)
_UNFINISHED = [state.value for state in (JobState.QUEUED, *sorted(LIVE_JOB_STATES))]
_LIVE = AllocationRow.state != AllocationState.ENDED.value
# Every snapshot reads these, and every move of a job some.
_ALL_LIVE = _allocations.select(_LIVE).order_by(AllocationRow.created_at_s, AllocationRow.allocation_id)
_LIVE_OF_JOB = _allocations.select(AllocationRow.job_id == bindparam("job"), _LIVE)
_OF_JOBS = _allocations.select(AllocationRow.job_id.in_(bindparam("jobs", expanding=True))).order_by(
    AllocationRow.job_id, AllocationRow.generation
)
_ENDED_OF_UNFINISHED = _allocations.select(
    AllocationRow.state == AllocationState.ENDED.value,
    AllocationRow.job_id.in_(select(JobRow.job_id).where(JobRow.state.in_(_UNFINISHED))),
).order_by(AllocationRow.job_id, AllocationRow.generation)
_PROCESSES_OF = _processes.select(ProcessRow.allocation_id == bindparam("allocation")).order_by(
    ProcessRow.rank
)
_ALL_GPUS = _gpus.select().order_by(HeldGpuRow.node_id, HeldGpuRow.gpu_index)
_ALL_LINKS = _links.select().order_by(HeldLinkRow.src, HeldLinkRow.dst, HeldLinkRow.allocation_id)
_IN_TRANSITION = (
    select(ProcessRow.region)
    .join(AllocationRow, AllocationRow.allocation_id == ProcessRow.allocation_id)
    .where(AllocationRow.state.in_([AllocationState.STARTING.value, AllocationState.STOPPING.value]))
    .distinct()
)
_NO_LONGER_DESIRED = (
    update(cast("Table", ProcessRow.__table__))
    .where(ProcessRow.allocation_id == bindparam("allocation"), ProcessRow.desired.is_(True))
    .values(desired=False, version=ProcessRow.version + 1)
)
_RELEASE_GPUS, _RELEASE_PORTS, _RELEASE_LINKS = (
    delete(row).where(row.allocation_id == bindparam("allocation"))
    for row in (HeldGpuRow, HeldPortRow, HeldLinkRow)
)
_HELD_BY_PROJECT = select(HeldGpuRow.project, func.count()).group_by(HeldGpuRow.project)
_RESERVED = select(HeldLinkRow.src, HeldLinkRow.dst, func.sum(HeldLinkRow.bandwidth_bps)).group_by(
    HeldLinkRow.src, HeldLinkRow.dst
)


def add(
    session: Session,
    allocation: AllocationRecord,
    processes: Sequence[ProcessRecord],
    gpus: Sequence[HeldGpuRecord],
    links: Sequence[HeldLinkRecord],
    port: HeldPortRecord,
) -> None:
    """Commits a gang whole: IntegrityError if a GPU or port is held already or the job has a live allocation."""
    _allocations.add(session, allocation)
    _processes.add(session, *processes)
    _gpus.add(session, *gpus)
    _ports.add(session, port)
    if links:
        _links.add(session, *links)


def get(session: Session, scope: Scope, allocation_id: str) -> AllocationRecord | None:
    found = _allocations.get(session, allocation_id)
    return found if found is not None and scope.covers(found.project) else None


def live(session: Session) -> list[AllocationRecord]:
    """Of every project, in order of commitment."""
    return _allocations.fetch(session, _ALL_LIVE, {})


def live_of_job(session: Session, job_id: str) -> AllocationRecord | None:
    found = _allocations.fetch(session, _LIVE_OF_JOB, {"job": job_id})
    return found[0] if found else None


def of_jobs(session: Session, scope: Scope, job_ids: Collection[str]) -> list[AllocationRecord]:
    """All generations, in order."""
    found = _allocations.fetch(session, _OF_JOBS, {"jobs": list(job_ids)})
    return [allocation for allocation in found if scope.covers(allocation.project)]


def ended_of_unfinished_jobs(session: Session) -> list[AllocationRecord]:
    """Earlier generations of jobs that wait or live, in order."""
    return _allocations.fetch(session, _ENDED_OF_UNFINISHED, {})


def between(
    session: Session, scope: Scope, from_s: float, to_s: float, after: tuple[float, str] | None, limit: int
) -> list[AllocationRecord]:
    """Those that held anything in [from_s, to_s], by commitment, after the key (created_at_s, allocation_id)."""
    where = [
        scope.of(AllocationRow.project),
        AllocationRow.created_at_s <= to_s,
        or_(AllocationRow.ended_at_s.is_(None), AllocationRow.ended_at_s >= from_s),
    ]
    if after is not None:
        created, allocation_id = AllocationRow.created_at_s, AllocationRow.allocation_id
        where.append(or_(created > after[0], and_(created == after[0], allocation_id > after[1])))
    by_commitment = [AllocationRow.created_at_s, AllocationRow.allocation_id]
    return _allocations.all(session, *where, order_by=by_commitment, limit=limit)


def change(session: Session, allocation: AllocationRecord, **values: Any) -> bool:
    """Sets `values` if the row is still as `allocation` has it."""
    return _allocations.change(session, allocation, **values)


def processes_of(session: Session, allocation_id: str) -> list[ProcessRecord]:
    """By rank."""
    return _processes.fetch(session, _PROCESSES_OF, {"allocation": allocation_id})


def process(session: Session, key: str) -> ProcessRecord | None:
    return _processes.get(session, key)


def change_process(session: Session, key: str, **values: Any) -> None:
    session.execute(
        update(ProcessRow).where(ProcessRow.key == key).values(**values, version=ProcessRow.version + 1)
    )


def no_longer_desired(session: Session, allocation_id: str) -> None:
    """Tells the agents, at their next heartbeat, to stop every process of the allocation."""
    session.execute(_NO_LONGER_DESIRED, {"allocation": allocation_id})


def release(session: Session, allocation_id: str) -> None:
    """Gives back GPUs, port and bandwidth."""
    for statement in (_RELEASE_GPUS, _RELEASE_PORTS, _RELEASE_LINKS):
        session.execute(statement, {"allocation": allocation_id})


def hold_links(session: Session, allocation_id: str, links: Sequence[HeldLinkRecord]) -> None:
    """From now on the allocation holds this bandwidth, and no other."""
    session.execute(_RELEASE_LINKS, {"allocation": allocation_id})
    if links:
        _links.add(session, *links)


def held_gpus_by_project(session: Session) -> dict[str, int]:
    """How many each project holds."""
    found = session.execute(_HELD_BY_PROJECT)
    return {project: count for project, count in found}  # noqa: C416 - dict() loses the types


def held_gpus(session: Session) -> list[HeldGpuRecord]:
    return _gpus.fetch(session, _ALL_GPUS, {})


def held_ports(session: Session, node_id: str) -> list[HeldPortRecord]:
    return _ports.all(session, HeldPortRow.node_id == node_id, order_by=[HeldPortRow.port])


def held_links(session: Session) -> list[HeldLinkRecord]:
    return _links.fetch(session, _ALL_LINKS)


def regions_in_transition(session: Session) -> frozenset[str]:
    """Where a gang stands that is starting or stopping: state is on its way, to it or from it."""
    return frozenset(session.scalars(_IN_TRANSITION))


def reserved_bps(session: Session) -> dict[tuple[str, str], float]:
    """Bandwidth held on each directed link."""
    rows = session.execute(_RESERVED)
    return {(src, dst): held for src, dst, held in rows}
