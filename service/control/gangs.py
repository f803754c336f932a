"""Committing one gang: its allocation, what it holds, its processes, and the move of its job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy.exc import IntegrityError

from scheduler.job import JobState
from scheduler.packing import StageSlots
from scheduler.placement import AllocationState
from scheduler.plan import Hold, Start
from scheduler.reasons import Reason, ReasonCode
from service import placements
from service.control.errors import DoublePromiseError, StalePlanError
from service.db import control_queries
from service.db.records import (
    AllocationRecord,
    HeldGpuRecord,
    HeldPortRecord,
    JobRecord,
    NodeRecord,
    ProcessRecord,
)
from service.db.repositories import allocations, cluster, jobs
from service.db.scope import EVERYTHING
from service.db.session import Session
from service.launch import Gang, choose_port, default_checkpoint_uri, stage_processes
from service.lifecycle import PENDING, Moment, move_job, record_birth
from service.reservations import held_links
from service.stored_jobs import document_of


@dataclass(frozen=True, slots=True)
class PackedStart:
    """A start with the GPUs it gets, and the id its allocation will have."""

    start: Start
    slots: tuple[StageSlots, ...]
    allocation_id: str


@dataclass(frozen=True, slots=True)
class Grounds:
    """What the applier adds to a plan: who applies it, and where checkpoints go by default."""

    epoch: int
    moment: Moment
    checkpoint_root: str


def commit_gang(session: Session, packed: PackedStart, grounds: Grounds) -> Hold | None:
    """Commit one start. Where no port is free for it, it alone waits: the hold that says so.

    Raises StalePlanError if the job waits no more, DoublePromiseError if a GPU, a port or the job is held already.
    """
    job = jobs.get(session, EVERYTHING, packed.start.job_id)
    if job is None or job.state != JobState.QUEUED or job.cancel_requested:
        raise StalePlanError(f"job {packed.start.job_id} does not wait any more")
    placement, allocation_id = packed.start.placement, packed.allocation_id
    master = cluster.node(session, packed.slots[0].slots[0][0])
    if master is None:
        raise StalePlanError(f"node {packed.slots[0].slots[0][0]} is gone")
    port = _rendezvous_port(session, master)
    if port is None:
        return _no_port(job, master)
    document = document_of(job)
    gang = Gang(
        job_id=job.job_id,
        allocation_id=allocation_id,
        generation=job.generation + 1,
        document=document,
        placement=placement,
        slots=packed.slots,
        master_address=master.address,
        master_port=port,
        resume_step=job.checkpoint_step,
        checkpoint_uri=document.checkpoint.uri
        or default_checkpoint_uri(grounds.checkpoint_root, job.project, job.job_id),
    )
    processes = _processes(gang, job.project)
    try:
        allocations.add(
            session,
            _allocation(gang, job, packed.start, grounds),
            processes,
            [
                HeldGpuRecord(node_id, gpu, job.project, allocation_id)
                for stage in packed.slots
                for node_id, gpu in stage.slots
            ],
            held_links(placement, packed.start.transfers, job.project, allocation_id),
            HeldPortRecord(master.node_id, gang.master_port, job.project, allocation_id),
        )
    except IntegrityError as error:
        raise DoublePromiseError(f"allocation {allocation_id} of job {job.job_id}: {error.orig}") from error
    _record(session, job, gang, packed.start.why, processes, grounds.moment)
    return None


def _record(
    session: Session,
    job: JobRecord,
    gang: Gang,
    why: str,
    processes: Sequence[ProcessRecord],
    moment: Moment,
) -> None:
    """The moves and the events of a committed gang."""
    facts = {"allocation_id": gang.allocation_id, "generation": gang.generation}
    record_birth(
        session,
        "allocation",
        gang.allocation_id,
        AllocationState.STARTING.value,
        job.project,
        moment,
        job_id=job.job_id,
        generation=gang.generation,
        chain=gang.placement.describe(),
    )
    for process in processes:
        record_birth(session, "process", process.key, PENDING, job.project, moment, job_id=job.job_id)
    move_job(
        session,
        job,
        JobState.STARTING,
        moment,
        data={**facts, "chain": gang.placement.describe(), "why": why},
        generation=gang.generation,
        first_started_at_s=moment.at_s if job.first_started_at_s is None else job.first_started_at_s,
        reasons=[],
        queue_position=None,
        stop_cause=None,
    )


def _rendezvous_port(session: Session, master: NodeRecord) -> int | None:
    taken = control_queries.ports_held_at(session, master.address)
    last = control_queries.port_used_last_at(session, master.address)
    return choose_port(master.port_first, master.port_last, taken, last)


def _no_port(job: JobRecord, master: NodeRecord) -> Hold:
    ports = f"{master.port_first}…{master.port_last}"
    detail = f"every port of {ports} at {master.address} is held: widen the range of {master.node_id}'s agent"
    return Hold(job.job_id, 1, (Reason(ReasonCode.PORTS_EXHAUSTED, detail, region=master.region),))


def _allocation(gang: Gang, job: JobRecord, start: Start, grounds: Grounds) -> AllocationRecord:
    return AllocationRecord(
        allocation_id=gang.allocation_id,
        project=job.project,
        job_id=job.job_id,
        generation=gang.generation,
        state=AllocationState.STARTING.value,
        placement=placements.to_document(gang.placement),
        why=start.why,
        transfers=placements.transfers_to_documents(start.transfers),
        predicted_iteration_s=start.predicted_iteration_s,
        first_step=gang.resume_step + 1,
        master_address=gang.master_address,
        master_port=gang.master_port,
        epoch=grounds.epoch,
        created_at_s=grounds.moment.at_s,
        running_at_s=None,
        ended_at_s=None,
        billed_until_s=None,
        stop_cause=None,
        stop_why=None,
        version=1,
    )


def _processes(gang: Gang, project: str) -> list[ProcessRecord]:
    return [
        ProcessRecord(
            key=launch.key,
            project=project,
            allocation_id=gang.allocation_id,
            job_id=gang.job_id,
            node_id=launch.node_id,
            rank=launch.rank,
            stage=launch.stage,
            region=launch.env["BACE_REGION"],
            launch=launch.model_dump(mode="json"),
            desired=True,
            state=PENDING,
            exit_code=None,
            cause=None,
            detail=None,
            last_lines=[],
            busy_fraction=None,
            version=1,
        )
        for launch in stage_processes(gang)
    ]
