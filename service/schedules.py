"""The what-if of pipeline schedules: what a job would come to under each. Nothing is stored."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from scheduler.errors import InvalidValueError
from scheduler.network import Residual
from scheduler.pipeline.plan.comparison import Comparison, compare
from scheduler.pipeline.plan.where import NoPlacementError, Stand, chosen, named
from scheduler.placement import Placement
from scheduler.snapshot import Snapshot
from scheduler.spec.updates import micro_batches_an_update
from service import dry_jobs, placements
from service.access import Principal
from service.db.records import AllocationRecord, JobRecord
from service.db.repositories import allocations
from service.db.session import Session
from service.errors import ConflictError, FieldError, InvalidInputError
from service.jobs import find
from service.policy import policy_of
from service.reason_documents import to_document as reason_document
from service.services import Services
from service.stored_jobs import document_of, spec_of
from service.tenancy import hide_in, hider


async def of_document(
    services: Services,
    principal: Principal,
    document: dict[str, Any],
    placement: str | None,
    pictured: str | None,
) -> Comparison:
    """Of a job as it would be submitted, on the chain that is named or that the policy would choose.

    Raises InvalidInputError or ForbiddenError as a submission would, and InvalidInputError for a chain or a schedule
    that is none; ConflictError where the policy has no place for the job.
    """
    dry = await dry_jobs.read(services, principal, document)
    spec, snapshot = dry.spec, dry.snapshot

    def stand() -> Stand:
        if placement is not None:
            return named(placement, spec, snapshot)
        return chosen(spec, snapshot, policy_of(services.settings))

    every = micro_batches_an_update(dry.document)
    return await _compared(
        services, principal, snapshot, lambda: compare(spec, snapshot, stand(), pictured, every)
    )


async def of_job(services: Services, principal: Principal, job_id: str, pictured: str | None) -> Comparison:
    """Of a job of the caller's: where it stands or last stood, with what it was granted; else where the policy would
    start it. Raises as `of_document`, NotFoundError, AmbiguousIdError."""
    now_s = services.clock.now()

    def work(session: Session) -> tuple[JobRecord, Placement | None, Snapshot]:
        job = find(session, principal.scope, job_id)
        ran = allocations.of_jobs(session, principal.scope, [job.job_id])
        return job, _last(ran), services.snapshots.load(session, now_s)

    job, last, snapshot = await services.db.read(work)
    spec, every = spec_of(job), micro_batches_an_update(document_of(job))
    pools = snapshot.cluster.pools
    is_there = last is not None and all((each.region, each.gpu_type) in pools for each in last.segments)

    def stand() -> Stand:
        if last is not None and is_there:
            return Stand(last, Residual.of(snapshot), "where it stands, or stood last")
        return chosen(spec, snapshot, policy_of(services.settings))

    return await _compared(
        services, principal, snapshot, lambda: compare(spec, snapshot, stand(), pictured, every)
    )


def _last(ran: Sequence[AllocationRecord]) -> Placement | None:
    """The placement of the last generation."""
    last = max(ran, key=lambda each: each.generation, default=None)
    return None if last is None else placements.from_document(last.placement)


async def _compared(
    services: Services,
    principal: Principal,
    snapshot: Snapshot,
    work: Callable[[], Comparison],
) -> Comparison:
    hide = hider(snapshot, principal.scope)
    try:
        found = await services.compute.run(work, principal.token_id)
    except InvalidValueError as error:
        wrong = FieldError(f"/{error.field}", f"expected {error.expected}", error.code, error.value, "query")
        raise InvalidInputError(str(error), errors=(wrong,)) from None
    except NoPlacementError as error:
        reasons = hide_in(error.reasons, hide)
        raise ConflictError(
            "no region or chain of regions can hold this job: name one as `placement`, or see `reasons`",
            reasons=tuple(map(reason_document, reasons)),
        ) from None
    return replace(found, why=hide(found.why))
