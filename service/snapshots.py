"""Rows → `scheduler.Snapshot`: the one view of the world that planning, explaining and dry runs share."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import accumulate, groupby

from sqlalchemy.orm import Session

from scheduler.cluster import Cluster, GpuType, Link, LinkKey, Node, Ownership, Pool, PoolKey, Region
from scheduler.job import LIVE_JOB_STATES, JobSpec, JobState
from scheduler.placement import Allocation
from scheduler.price import KnownPrices, PriceSeries
from scheduler.snapshot import RunningJob, Snapshot, WaitingJob
from scheduler.spec.job import parse_job
from service import placements
from service.db.records import AllocationRecord, JobRecord, NodeRecord, PointRecord
from service.db.repositories import allocations, cluster, jobs, leader, prices

PRICE_LOOKBACK_S = 14 * 86_400.0
"""How much of the past of a price a decision may look at, to forecast."""
READY = "ready"


class SnapshotReader:
    """Reads snapshots; keeps the parsed specs of jobs that are not finished, which never change."""

    def __init__(self) -> None:
        self._specs: dict[str, JobSpec] = {}

    def load(self, session: Session, now_s: float) -> Snapshot:
        """The world as far as it is known at `now_s`, in one read transaction.

        Jobs that wait for their back-off to end are not in it. Nodes that are cordoned or lost offer no GPU; what
        runs on them still counts as held.
        """
        unfinished = jobs.in_states(session, (JobState.QUEUED, *LIVE_JOB_STATES))
        specs = {job.job_id: self._specs.get(job.job_id) or spec_of(job) for job in unfinished}
        self._specs = specs
        held = {record.job_id: record for record in allocations.live(session)}
        running = tuple(
            _running(job, specs[job.job_id], held[job.job_id]) for job in unfinished if job.job_id in held
        )
        return Snapshot(
            version=leader.get(session).snapshot_version,
            now_s=now_s,
            cluster=_cluster(session, running, now_s),
            electricity=electricity(session, now_s),
            waiting=tuple(
                waiting(job, specs[job.job_id])
                for job in unfinished
                if job.state == JobState.QUEUED and job.not_before_s <= now_s
            ),
            running=running,
        )


def spec_of(job: JobRecord) -> JobSpec:
    """A stored job as the planner takes it."""
    return parse_job(job.spec).to_spec(job.job_id, job.project, job.submitted_at_s)


def waiting(job: JobRecord, spec: JobSpec) -> WaitingJob:
    """A queued job; where it has a checkpoint, only regions that can reach it are open to it."""
    reachable = frozenset(job.checkpoint_regions) if job.checkpoint_step else frozenset()
    return WaitingJob(
        spec=spec,
        remaining_steps=max(1, job.declared_steps - job.checkpoint_step),
        generation=job.generation + 1,
        require_regions=reachable,
    )


def electricity(session: Session, now_s: float) -> dict[str, KnownPrices]:
    """USD per kWh of each region that has any price, as known at `now_s`."""
    series = prices.series(session, kind="electricity")
    region_of = {record.series_id: record.region for record in series}
    points = prices.points(
        session,
        list(region_of),
        from_s=now_s - PRICE_LOOKBACK_S,
        to_s=math.inf,
        known_by_s=now_s,
    )
    return {
        region_of[series_id]: price_series(list(group)).known(now_s)
        for series_id, group in groupby(points, key=lambda point: point.series_id)
    }


def price_series(points: Sequence[PointRecord]) -> PriceSeries:
    """Points of one series, by validity and publication, as a step function: the latest correction holds."""
    latest = {point.valid_from_s: point for point in points}
    in_force = list(latest.values())
    return PriceSeries(
        valid_from_s=tuple(point.valid_from_s for point in in_force),
        values=tuple(point.value for point in in_force),
        # A corrected hour is known later than its successors: published is what all before it is published with.
        known_at_s=tuple(accumulate((point.known_at_s for point in in_force), max)),
    )


def price_now(session: Session, kind: str, now_s: float) -> dict[tuple[str, str, str], float]:
    """(region, GPU type, destination) → the price that holds at `now_s` as known then, for one kind."""
    series = {record.series_id: record for record in prices.series(session, kind=kind)}
    points = prices.points(session, list(series), from_s=now_s, to_s=now_s, known_by_s=now_s)
    return {
        (
            series[point.series_id].region,
            series[point.series_id].gpu_type,
            series[point.series_id].dst,
        ): point.value
        for point in points
    }


def _running(job: JobRecord, spec: JobSpec, allocation: AllocationRecord) -> RunningJob:
    return RunningJob(
        spec=spec,
        allocation=Allocation(
            allocation_id=allocation.allocation_id,
            job_id=job.job_id,
            generation=allocation.generation,
            placement=placements.from_document(allocation.placement),
            start_s=allocation.created_at_s,
        ),
        remaining_steps=max(1, job.declared_steps - job.reported_steps),
    )


def _cluster(session: Session, running: Iterable[RunningJob], now_s: float) -> Cluster:
    records = cluster.nodes(session)
    nodes = _nodes(session, records)
    return Cluster(
        gpu_types=_gpu_types(session, records),
        regions={
            record.region: Region(
                record.region,
                record.pue,
                math.inf if record.uplink_bps is None else record.uplink_bps,
                math.inf if record.downlink_bps is None else record.downlink_bps,
            )
            for record in cluster.regions(session)
        },
        pools=_pools(session, records, nodes, running, now_s),
        links=_links(session, now_s),
        nodes=nodes,
    )


def _gpu_types(session: Session, nodes: Iterable[NodeRecord]) -> dict[str, GpuType]:
    """A type is as fast as the slowest of its nodes: the slowest stage sets the pace of a pipeline."""
    slowest: dict[str, float] = {}
    for node in nodes:
        slowest[node.gpu_type] = min(node.sustained_flops, slowest.get(node.gpu_type, math.inf))
    return {
        record.gpu_type: GpuType(
            name=record.gpu_type,
            sustained_flops=slowest[record.gpu_type],
            memory_bytes=record.memory_bytes,
            power_w=record.power_w,
            idle_w=record.idle_w,
            intra_region_bps=record.intra_region_bps,
        )
        for record in cluster.gpu_types(session)
        if record.gpu_type in slowest
    }


def _nodes(session: Session, records: Iterable[NodeRecord]) -> tuple[Node, ...]:
    held: dict[str, set[int]] = defaultdict(set)
    for gpu in allocations.held_gpus(session):
        held[gpu.node_id].add(gpu.gpu_index)
    return tuple(
        Node(
            node_id=record.node_id,
            region=record.region,
            gpu_type=record.gpu_type,
            free_gpus=tuple(index for index in range(record.gpus) if index not in held[record.node_id]),
        )
        for record in records
        if record.state == READY
    )


def _pools(
    session: Session,
    records: Iterable[NodeRecord],
    nodes: Iterable[Node],
    running: Iterable[RunningJob],
    now_s: float,
) -> dict[PoolKey, Pool]:
    """Held GPUs count even on nodes that take nothing new: pool − running = what is free on ready nodes."""
    gpus: dict[PoolKey, int] = {(record.region, record.gpu_type): 0 for record in records}
    for node in nodes:
        gpus[node.region, node.gpu_type] += len(node.free_gpus)
    for job in running:
        for segment in job.allocation.placement.segments:
            key = (segment.region, segment.gpu_type)
            gpus[key] = gpus.get(key, 0) + segment.gpus
    rent = price_now(session, "rent", now_s)
    owned = {(record.region, record.gpu_type): record.ownership for record in cluster.pools(session)}
    return {
        (region, gpu_type): Pool(
            region=region,
            gpu_type=gpu_type,
            gpus=count,
            ownership=Ownership(owned.get((region, gpu_type), Ownership.OWNED)),
            rent_usd_per_gpu_hour=rent.get((region, gpu_type, ""), 0.0),
        )
        for (region, gpu_type), count in sorted(gpus.items())
    }


def _links(session: Session, now_s: float) -> dict[LinkKey, Link]:
    egress = price_now(session, "egress", now_s)
    return {
        (record.src, record.dst): Link(
            src=record.src,
            dst=record.dst,
            capacity_bps=record.capacity_bps,
            latency_s=record.latency_s,
            egress_usd_per_gb=egress.get((record.src, "", record.dst), 0.0),
        )
        for record in cluster.links(session)
    }
