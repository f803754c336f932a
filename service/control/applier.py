"""The one place where GPUs, ports and bandwidth are promised: a whole plan in one transaction, or nothing of it.

`prepare` is done before (packing needs no database); `apply_plan` is the transaction. It is guarded three times: by
the leader's epoch (its caller), by the version of the snapshot that the plan was made from, and by the keys of what
is held: a GPU or a port that another live allocation holds cannot be inserted again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from scheduler.cluster import Node
from scheduler.job import JobState
from scheduler.packing import StageSlots, pack
from scheduler.placement import AllocationState, Placement
from scheduler.plan import Hold, Plan, Reject, Start
from scheduler.reasons import Reason, ReasonCode
from scheduler.snapshot import Snapshot
from scheduler.spec.job import parse_job
from service import placements
from service.control import verdicts
from service.control.errors import DoublePromiseError, StalePlanError
from service.db import control_queries
from service.db.records import (
    AllocationRecord,
    HeldGpuRecord,
    HeldLinkRecord,
    HeldPortRecord,
    JobRecord,
    NodeRecord,
    ProcessRecord,
)
from service.db.repositories import allocations, cluster, jobs, leader
from service.db.scope import EVERYTHING
from service.launch import Gang, choose_port, default_checkpoint_uri, stage_processes
from service.lifecycle import PENDING, Moment, move_job, record_birth

ROUNDING = 1e-9
"""Relative: sums of granted bandwidth may exceed a capacity by rounding."""


@dataclass(frozen=True, slots=True)
class PackedStart:
    """A start with the GPUs it gets, and the id its allocation will have."""

    start: Start
    slots: tuple[StageSlots, ...]
    allocation_id: str


@dataclass(frozen=True, slots=True)
class PackedPlan:
    """A plan that can be applied."""

    snapshot_version: int
    starts: tuple[PackedStart, ...]
    holds: tuple[Hold, ...]
    rejects: tuple[Reject, ...]


@dataclass(frozen=True, slots=True)
class Grounds:
    """What the applier adds to a plan: who applies it, and where checkpoints go by default."""

    epoch: int
    moment: Moment
    checkpoint_root: str


def prepare(snapshot: Snapshot, plan: Plan, allocation_ids: Iterable[str]) -> PackedPlan:
    """Give every start its GPUs, one after the other. Raises InvalidValueError if the nodes lack room."""
    nodes, packed = list(snapshot.cluster.nodes), []
    for start, allocation_id in zip(plan.starts, allocation_ids, strict=True):
        slots = pack(nodes, start.placement)
        nodes = _without(nodes, slots)
        packed.append(PackedStart(start, slots, allocation_id))
    return PackedPlan(
        snapshot_version=plan.snapshot_version,
        starts=tuple(packed),
        holds=tuple(decision for decision in plan.decisions if isinstance(decision, Hold)),
        rejects=tuple(decision for decision in plan.decisions if isinstance(decision, Reject)),
    )


def apply_plan(session: Session, plan: PackedPlan, grounds: Grounds) -> None:
    """Commit a plan whole. Raises StalePlanError if the world has changed, DoublePromiseError if it must never be."""
    current = leader.get(session).snapshot_version
    if current != plan.snapshot_version:
        raise StalePlanError(f"the plan was made for version {plan.snapshot_version}, it is {current} now")
    without_port = [hold for start in plan.starts if (hold := _commit_gang(session, start, grounds))]
    if plan.starts:
        _check_links(session, plan.starts)
        leader.capacity_changed(session)
    verdicts.store(session, (*plan.holds, *without_port), plan.rejects, grounds.moment)


def _without(nodes: Sequence[Node], slots: Sequence[StageSlots]) -> list[Node]:
    taken = {slot for stage in slots for slot in stage.slots}
    return [
        replace(node, free_gpus=tuple(gpu for gpu in node.free_gpus if (node.node_id, gpu) not in taken))
        for node in nodes
    ]


def _commit_gang(session: Session, packed: PackedStart, grounds: Grounds) -> Hold | None:
    """Commit one start. Where no port is free for it, it alone waits: the hold that says so."""
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
    document = parse_job(job.spec)
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
            _links(placement, job.project, allocation_id),
            HeldPortRecord(master.node_id, gang.master_port, job.project, allocation_id),
        )
    except IntegrityError as error:
        raise DoublePromiseError(f"allocation {allocation_id} of job {job.job_id}: {error.orig}") from error
    _record(session, job, gang, processes, grounds.moment)
    return None


def _record(
    session: Session, job: JobRecord, gang: Gang, processes: Sequence[ProcessRecord], moment: Moment
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
        data={**facts, "chain": gang.placement.describe()},
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
        predicted_iteration_s=start.predicted_iteration_s,
        first_step=gang.resume_step + 1,
        master_address=gang.master_address,
        master_port=gang.master_port,
        epoch=grounds.epoch,
        created_at_s=grounds.moment.at_s,
        running_at_s=None,
        ended_at_s=None,
        billed_until_s=None,
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


def _links(placement: Placement, project: str, allocation_id: str) -> list[HeldLinkRecord]:
    """A cut holds its bandwidth in both directions: activations there, gradients back."""
    held: dict[tuple[str, str], float] = {}
    for cut in placement.cuts:
        for direction in ((cut.src, cut.dst), (cut.dst, cut.src)):
            held[direction] = held.get(direction, 0.0) + cut.bandwidth_bps
    return [HeldLinkRecord(allocation_id, src, dst, project, bps) for (src, dst), bps in sorted(held.items())]


def _check_links(session: Session, starts: Sequence[PackedStart]) -> None:
    """No byte/s is promised twice, on the links of the new cuts and on what the links of a region share.

    A link that was made smaller than what it already carries is no concern of gangs that do not use it.
    """
    cuts = [cut for packed in starts for cut in packed.start.placement.cuts]
    used = {(cut.src, cut.dst) for cut in cuts} | {(cut.dst, cut.src) for cut in cuts}
    held = allocations.reserved_bps(session)
    for link in cluster.links(session):
        if (link.src, link.dst) in used:
            _check_sum([held[link.src, link.dst]], link.capacity_bps, f"link {link.src}->{link.dst}")
    for region in cluster.regions(session):
        up = [bps for (src, _), bps in held.items() if src == region.region]
        down = [bps for (_, dst), bps in held.items() if dst == region.region]
        if any(region.region in direction for direction in used):
            _check_sum(up, region.uplink_bps, f"uplink of {region.region}")
            _check_sum(down, region.downlink_bps, f"downlink of {region.region}")


def _check_sum(held_bps: Collection[float], capacity_bps: float | None, name: str) -> None:
    if capacity_bps is not None and sum(held_bps) > capacity_bps * (1.0 + ROUNDING):
        raise DoublePromiseError(f"{name}: {sum(held_bps):g} bit/s promised of {capacity_bps:g}")
