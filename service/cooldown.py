"""Regions that a job does not go back to for a while, because a node failed it there."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from scheduler.cluster import Cluster
from scheduler.network import Topology
from scheduler.options import Demands
from scheduler.snapshot import WaitingJob
from service import causes
from service.db.records import AllocationRecord
from service.db.repositories import allocations
from service.db.session import Session


def cooling(session: Session, ended: Iterable[AllocationRecord], since_s: float) -> dict[str, frozenset[str]]:
    """By job, the regions in which an allocation that ended since then failed; a job's own errors are no region's."""
    found: dict[str, frozenset[str]] = {}
    for record in ended:
        if record.ended_at_s is None or record.ended_at_s < since_s:
            continue
        processes = allocations.processes_of(session, record.allocation_id)
        failure = causes.root_failure(processes, record.stop_cause)
        if failure is not None and failure.region and failure.cause.kind is causes.Kind.INFRASTRUCTURE:
            found[record.job_id] = found.get(record.job_id, frozenset()) | {failure.region}
    return found


def avoiding(job: WaitingJob, regions: frozenset[str], cluster: Cluster) -> WaitingJob:
    """The job kept out of these regions, if the others could hold it: it does not wait for a region to cool down that
    it cannot do without."""
    if not regions:
        return job
    elsewhere = replace(job, avoid_regions=regions)
    return elsewhere if Demands(Topology.of(cluster)).of(elsewhere).candidates else job
