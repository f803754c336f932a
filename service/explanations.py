"""Why a job waits: the planner's own words, on a snapshot of now."""

from __future__ import annotations

from dataclasses import dataclass, replace

from scheduler.explain import Explanation
from scheduler.explain_quotas import explain_within_quotas
from scheduler.snapshot import Snapshot
from service.access import Principal
from service.db.records import JobRecord
from service.db.session import Session
from service.jobs import find
from service.policy import policy_of
from service.services import Services
from service.tenancy import hide_in, hider


@dataclass(frozen=True, slots=True)
class JobExplanation:
    """A job's state and stored reasons; and, if planning looks at it now, what a round would say."""

    job: JobRecord
    now: Explanation | None


async def explain_job(services: Services, principal: Principal, job_id: str) -> JobExplanation:
    """Explains one job of the caller's. Raises NotFoundError, AmbiguousIdError."""
    now_s = services.clock.now()

    def work(session: Session) -> tuple[JobRecord, Snapshot]:
        return find(session, principal.scope, job_id), services.snapshots.load(session, now_s)

    job, snapshot = await services.db.read(work)
    if not any(waiting.spec.job_id == job.job_id for waiting in snapshot.waiting):
        return JobExplanation(job, None)
    config = policy_of(services.settings)
    told = await services.compute.run(
        lambda: explain_within_quotas(snapshot, config, job.job_id), principal.token_id
    )
    return JobExplanation(job, _for(principal, snapshot, told))


def _for(principal: Principal, snapshot: Snapshot, told: Explanation) -> Explanation:
    """Without what the caller may not know of other projects."""
    hide = hider(snapshot, principal.scope)
    return replace(
        told,
        reasons=hide_in(told.reasons, hide),
        regions=tuple(replace(verdict, reasons=hide_in(verdict.reasons, hide)) for verdict in told.regions),
        would_start=tuple(hide(text) for text in told.would_start),
        blocking_jobs=tuple(job for job in told.blocking_jobs if hide(job) == job),
    )
