"""A job that nobody has submitted, in the world as it is: what a dry run and a comparison begin with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from scheduler.job import JobSpec
from scheduler.snapshot import Snapshot
from scheduler.spec.job import JobDocument
from scheduler.spec.support import named_regions
from service import job_input
from service.access import Principal
from service.db.repositories import cluster
from service.db.session import Session
from service.services import Services

DRY_JOB_ID = "job-dry-run"


@dataclass(frozen=True, slots=True)
class DryJob:
    """The job as it would be submitted at `at_s`, and what there is then."""

    document: JobDocument
    spec: JobSpec
    snapshot: Snapshot
    at_s: float


async def read(services: Services, principal: Principal, document: dict[str, Any]) -> DryJob:
    """Raises InvalidInputError or ForbiddenError as a submission would."""
    parsed = job_input.parse(document, principal, max_grace_s=services.settings.max_stop_grace_s)
    now_s = services.clock.now()
    job_input.check_deadline(parsed, now_s)

    def work(session: Session) -> Snapshot:
        if parsed.placement.regions or named_regions(parsed):
            job_input.check_regions(parsed, [region.region for region in cluster.regions(session)])
        return services.snapshots.load(session, now_s)

    snapshot = await services.db.read(work)
    return DryJob(parsed, parsed.to_spec(DRY_JOB_ID, parsed.project, now_s), snapshot, now_s)
