"""Rows → `scheduler.Snapshot`: the one view of the world that planning, explaining and dry runs share."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from scheduler.cluster import RestartCosts
from scheduler.job import LIVE_JOB_STATES, Elasticity, JobSpec, JobState
from scheduler.placement import Allocation
from scheduler.snapshot import Promise, Quota, RunningJob, Snapshot, WaitingJob
from service import placements
from service.checkpoints import regions_that_reach
from service.cluster_view import cluster_of
from service.cooldown import avoiding, cooling
from service.db.records import AllocationRecord, HeldGpuRecord, JobRecord, NodeRecord, PromiseRecord
from service.db.repositories import access, allocations, cluster, jobs, leader, ledger, promises, quotas
from service.db.session import Session
from service.known_prices import electricity
from service.lifecycle import NodeState
from service.months import month_ends_s, month_of
from service.stored_jobs import spec_of

RECENT_JOBS = 50


@dataclass(frozen=True, slots=True)
class _Past:
    """What earlier generations of a job left behind."""

    spent_usd: float
    last: AllocationRecord
    brought: frozenset[str]
    """Regions in which one of them began."""


@dataclass(frozen=True, slots=True)
class _Ground:
    """Where a live allocation stands. `may_reach` are the regions that will reach its checkpoints; empty: any."""

    is_leaving_capacity: bool
    """Whether a part of it stands on nodes that take nothing new: what it leaves does not all come back."""
    may_reach: frozenset[str]


class SnapshotReader:
    """Reads snapshots; keeps what never changes: parsed specs of jobs, and what ended allocations have cost."""

    def __init__(self, region_cooldown_s: float = 0.0, restart: RestartCosts | None = None) -> None:
        """A job that a node failed does not go back to that region for so long; `restart` is what stopping and
        starting again takes here."""
        self._region_cooldown_s = region_cooldown_s
        self._restart = restart or RestartCosts()
        self._specs: dict[str, JobSpec] = {}
        self._spent_usd: dict[str, float] = {}

    def load(self, session: Session, now_s: float) -> Snapshot:
        """The world as far as it is known at `now_s`, in one read transaction.

        Jobs that wait for their back-off to end are not in it; those whose place is promised are `promised`, not
        `waiting`.
        """
        unfinished = jobs.in_states(session, (JobState.QUEUED, *LIVE_JOB_STATES))
        recent = jobs.ended_last(session, RECENT_JOBS)
        specs = self._specs = {
            job.job_id: self._specs.get(job.job_id) or spec_of(job) for job in (*unfinished, *recent)
        }
        ended = allocations.ended_of_unfinished_jobs(session)
        past = self._past(session, ended)
        cools = cooling(session, ended, now_s - self._region_cooldown_s) if self._region_cooldown_s else {}
        live = {record.job_id: record for record in allocations.live(session)}
        promised = {record.job_id: record for record in promises.all_of_them(session)}
        present_usd = _present_usd(session, live, specs)
        nodes, held = cluster.nodes(session), allocations.held_gpus(session)
        grounds = _grounds(unfinished, live, nodes, held)
        running = tuple(
            replace(
                _running(job, specs[job.job_id], live[job.job_id], grounds[job.job_id], past.get(job.job_id)),
                ready_s=self._ready_s(live[job.job_id], now_s),
                generation_usd=present_usd.get(live[job.job_id].allocation_id, 0.0),
                avoid_regions=cools.get(job.job_id, frozenset()),
            )
            for job in unfinished
            if job.job_id in live
        )
        by_id = {job.job_id: job for job in unfinished}
        placed = [job.allocation.placement for job in running]
        there_is = replace(cluster_of(session, nodes, held, placed, now_s), restart=self._restart)
        return Snapshot(
            version=leader.get(session).snapshot_version,
            now_s=now_s,
            cluster=there_is,
            electricity=electricity(session, now_s),
            waiting=tuple(
                avoiding(
                    waiting(job, specs[job.job_id], past.get(job.job_id)),
                    cools.get(job.job_id, frozenset()),
                    there_is,
                )
                for job in unfinished
                if job.state == JobState.QUEUED and job.not_before_s <= now_s and job.job_id not in promised
            ),
            running=running,
            promised=tuple(
                _promised(record, by_id[job_id], specs[job_id])
                for job_id, record in promised.items()
                if job_id in by_id
            ),
            recent=tuple(specs[job.job_id] for job in recent),
            shares=access.shares(session),
            quotas=quotas_of(session, now_s),
        )

    def _ready_s(self, allocation: AllocationRecord, now_s: float) -> float:
        """When all stages were up. Until they are it lies ahead: a job that has not come so far has nothing to save."""
        if allocation.running_at_s is not None:
            return allocation.running_at_s
        return max(allocation.created_at_s + self._restart.fixed_s, math.nextafter(now_s, math.inf))

    def _past(self, session: Session, ended: Sequence[AllocationRecord]) -> dict[str, _Past]:
        """By job, for those that have run before."""
        known = self._spent_usd
        unknown = [record.allocation_id for record in ended if record.allocation_id not in known]
        known = known | ledger.spent_usd_by_allocation(session, unknown)
        self._spent_usd = {record.allocation_id: known.get(record.allocation_id, 0.0) for record in ended}
        past: dict[str, _Past] = {}
        for record in ended:  # a job's generations in order
            before = past.get(record.job_id)
            spent_usd = (before.spent_usd if before else 0.0) + self._spent_usd[record.allocation_id]
            began = placements.from_document(record.placement).segments[0].region
            brought = before.brought if before else frozenset()
            past[record.job_id] = _Past(spent_usd, record, brought | {began})
        return past


def quotas_of(session: Session, now_s: float) -> dict[str, Quota]:
    """Of the projects that have one, with what they have spent this month."""
    found = quotas.of_projects(session)
    if not found:
        return {}
    spent, ends_s = quotas.spent_usd(session, month_of(now_s)), month_ends_s(now_s)
    return {
        project: Quota(quota.gpus, quota.usd_per_month, spent.get(project, 0.0), ends_s)
        for project, quota in found.items()
    }


def _present_usd(
    session: Session, live: Mapping[str, AllocationRecord], specs: Mapping[str, JobSpec]
) -> dict[str, float]:
    """By allocation: what those of jobs with a budget have been billed until now."""
    budgeted = [
        record.allocation_id
        for job_id, record in live.items()
        if job_id in specs and specs[job_id].budget_usd is not None
    ]
    return ledger.spent_usd_by_allocation(session, budgeted)


def waiting(job: JobRecord, spec: JobSpec, past: _Past | None) -> WaitingJob:
    """A queued job. Where it has a checkpoint, only regions that can reach it are open to it, and one that may not
    be resized goes on with the stages that it had."""
    keeps_stages = job.checkpoint_step and spec.elasticity is not Elasticity.RESIZE and past is not None
    return WaitingJob(
        spec=spec,
        remaining_steps=max(1, job.declared_steps - job.checkpoint_step),
        generation=job.generation + 1,
        require_regions=frozenset(job.checkpoint_regions) if job.checkpoint_step else frozenset(),
        spent_usd=past.spent_usd if past else 0.0,
        stages=placements.from_document(past.last.placement).stages if keeps_stages and past else None,
        waits_since_s=past.last.ended_at_s if past else None,
        brought=past.brought if past else frozenset(),
    )


def _running(
    job: JobRecord,
    spec: JobSpec,
    allocation: AllocationRecord,
    ground: _Ground,
    past: _Past | None,
) -> RunningJob:
    stopping = job.state == JobState.STOPPING
    if ground.is_leaving_capacity:
        # Its GPUs are no ones to plan with: they are held until it is gone, and nothing is decided about it.
        spec, stopping = replace(spec, elasticity=Elasticity.NONE), False
    elif spec.elasticity is not Elasticity.NONE:
        spec = _kept_within(spec, ground.may_reach)
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
        transfers=placements.transfers_from_documents(
            allocation.transfers if allocation.running_at_s is None else ()
        ),
        stopping=stopping,
        spent_usd=past.spent_usd if past else 0.0,
        brought=past.brought if past else frozenset(),
    )


def _kept_within(spec: JobSpec, regions: frozenset[str]) -> JobSpec:
    """The same job, in these regions only (empty: wherever it may)."""
    rule = spec.placement
    allowed = tuple(
        region
        for region in sorted(regions)
        if not rule.regions or any(fnmatchcase(region, glob) for glob in rule.regions)
    )
    return replace(spec, placement=replace(rule, regions=allowed)) if allowed else spec


def _promised(record: PromiseRecord, job: JobRecord, spec: JobSpec) -> Promise:
    return Promise(
        spec=spec,
        placement=placements.from_document(record.placement),
        remaining_steps=max(1, job.declared_steps - job.reported_steps),
        generation=record.generation,
        transfers=placements.transfers_from_documents(record.transfers),
    )


def _grounds(
    unfinished: Iterable[JobRecord],
    live: Mapping[str, AllocationRecord],
    nodes: Sequence[NodeRecord],
    held: Iterable[HeldGpuRecord],
) -> dict[str, _Ground]:
    """By job, for those that hold something."""
    by_id = {node.node_id: node for node in nodes}
    regions_at: dict[str, set[str]] = {}
    for node in nodes:
        regions_at.setdefault(node.address, set()).add(node.region)
    stands_on: dict[str, dict[str, NodeRecord]] = {}
    for gpu in held:
        stands_on.setdefault(gpu.allocation_id, {})[gpu.node_id] = by_id[gpu.node_id]
    grounds = {}
    for job in unfinished:
        if job.job_id in live:
            writers = stands_on.get(live[job.job_id].allocation_id, {}).values()
            grounds[job.job_id] = _Ground(
                any(node.state != NodeState.READY for node in writers),
                regions_that_reach(
                    job.checkpoint_uri,
                    list(writers),
                    lambda addresses: set().union(*(regions_at[address] for address in addresses)),
                ),
            )
    return grounds
