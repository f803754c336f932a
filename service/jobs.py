"""What can be done with a job: submit, look, cancel. One function a verb."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from scheduler.job import JobState
from scheduler.spec.job import JobDocument
from service import cursors, job_input, submissions, topics
from service.access import Principal
from service.db.records import EventRecord, IdempotencyRecord, JobRecord
from service.db.repositories import access, cluster, events, jobs
from service.db.scope import Scope
from service.db.session import Session
from service.errors import (
    AmbiguousIdError,
    ConflictError,
    IdempotencyMismatchError,
    NotFoundError,
    PreconditionFailedError,
)
from service.job_views import JobView, view_jobs, view_new_job
from service.lifecycle import Moment
from service.policy import not_planned_by
from service.progress import request_cancel
from service.reason_documents import plan_pending
from service.services import Services
from service.submissions import Submission

_ID = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")
_AMBIGUOUS_SHOWN = 5
_LEAST_PREFIX = len("job-") + 4
"""Characters of an id that select a job: `job-` alone is the beginning of every one."""


@dataclass(frozen=True, slots=True)
class Submitted:
    """The job, and whether it had been submitted before under the same key."""

    view: JobView
    replayed: bool


async def submit(
    services: Services, principal: Principal, document: dict[str, Any], idempotency_key: str | None
) -> Submitted:
    """Stores a job durably; it waits from then on. The same key and body again give the same job.

    Raises InvalidInputError, ForbiddenError, or IdempotencyMismatchError for a key used with another body.
    """
    now_s = services.clock.now()
    submission = _submission(services, principal, document, idempotency_key, now_s)
    stored = await services.db.together(submissions.store, submission)
    if stored is None:  # it was submitted before, or must be refused, or others were in its way
        submitted = await services.db.run(lambda session: _submit_alone(session, submission, now_s))
    else:
        submitted = Submitted(view_new_job(stored), replayed=False)
    if not submitted.replayed:
        await services.bus.publish(topics.PLANNING)
    return submitted


def _submission(
    services: Services,
    principal: Principal,
    document: dict[str, Any],
    idempotency_key: str | None,
    now_s: float,
) -> Submission:
    parsed = job_input.parse(document, principal, max_grace_s=services.settings.max_stop_grace_s)
    record = _new_job(parsed, services.ids.new("job"), principal, now_s)
    claim = (
        None
        if idempotency_key is None
        else IdempotencyRecord(
            record.project, idempotency_key, fingerprint_of(document), record.job_id, now_s
        )
    )
    unheeded = not_planned_by(parsed, services.settings.policy)
    told = {"not_planned_by": unheeded} if unheeded else {}
    return Submission(parsed, record, claim, principal.moment(now_s), told)


def _submit_alone(session: Session, submission: Submission, now_s: float) -> Submitted:
    """What stands in its way is told: the job that was submitted before under its key, or an error."""
    if submission.claim is not None:
        first = _submitted_before(session, submission.claim)
        if first is not None:
            return Submitted(view_jobs(session, [first], now_s)[0], replayed=True)
    job_input.check_deadline(submission.document, now_s)
    if submission.names_regions:
        job_input.check_regions(submission.document, [region.region for region in cluster.regions(session)])
    (stored,) = submissions.store(session, [submission])
    if stored is None:
        raise ConflictError("the Idempotency-Key is in use by a submission that has not ended: try again")
    return Submitted(view_new_job(stored), replayed=False)


async def show(services: Services, principal: Principal, job_id: str) -> JobView:
    """One job, by its id or a prefix that fits no other. Raises NotFoundError, AmbiguousIdError."""
    now_s = services.clock.now()
    return await services.db.read(
        lambda session: view_jobs(session, [find(session, principal.scope, job_id)], now_s)[0]
    )


async def list_page(
    services: Services,
    principal: Principal,
    *,
    project: str | None,
    states: Collection[str],
    cursor: str | None,
    limit: int,
) -> tuple[list[JobView], str | None]:
    """Newest first, and the cursor of what follows."""
    before = cursors.decode(cursor)
    now_s = services.clock.now()

    def work(session: Session) -> list[JobView]:
        scope = principal.scope.narrowed(project)
        records = jobs.page(session, scope, states=states, before=before, limit=limit + 1)
        return view_jobs(session, records, now_s)

    views = await services.db.read(work)
    if len(views) <= limit:
        return views, None
    last = views[limit - 1].job
    return views[:limit], cursors.encode(last.submitted_at_s, last.job_id)


async def cancel(services: Services, principal: Principal, job_id: str, version: int | None) -> JobView:
    """Ends a job: at once if it waits, after its stages have stopped if it runs. Again changes nothing.

    Raises NotFoundError, ConflictError for a job that has ended otherwise, PreconditionFailedError if `version` is
    given and not the current one.
    """
    now_s = services.clock.now()
    rules = services.rules()

    def work(session: Session) -> JobView:
        job = find(session, principal.scope, job_id)
        if version is not None and version != job.version:
            raise PreconditionFailedError(f"job {job.job_id} is at version {job.version}, not {version}")
        cancelled = request_cancel(session, job.job_id, Moment(now_s, principal.token_id), rules)
        return view_jobs(session, [cancelled], now_s)[0]

    view = await services.db.run(work)
    await services.bus.publish(topics.PLANNING)
    return view


async def history(
    services: Services, principal: Principal, job_id: str, after: int, limit: int
) -> list[EventRecord]:
    """What happened to a job, oldest first, after an event's number."""

    def work(session: Session) -> list[EventRecord]:
        job = find(session, principal.scope, job_id)
        return events.after(session, principal.scope, after, limit, object_kind="job", object_id=job.job_id)

    return await services.db.read(work)


def find(session: Session, scope: Scope, text: str) -> JobRecord:
    """The one visible job with that id or id prefix. Raises NotFoundError, AmbiguousIdError."""
    if not _ID.fullmatch(text):
        raise NotFoundError("there is no job with such an id: ids are made of a-z, 0-9 and -")
    exact = jobs.get(session, scope, text)
    if exact is not None:
        return exact
    if len(text) < _LEAST_PREFIX:
        raise NotFoundError(
            f"there is no job {text}, and as a beginning it says too little: at least 4 characters behind job-"
        )
    found = jobs.with_prefix(session, scope, text, _AMBIGUOUS_SHOWN)
    if not found:
        raise NotFoundError(f"there is no job {text}: `bace jobs` shows those there are")
    if len(found) > 1:
        ids = [job.job_id for job in found]
        raise AmbiguousIdError(f"more than one job begins with {text}: {', '.join(ids)} …", candidates=ids)
    return found[0]


def fingerprint_of(document: dict[str, Any]) -> str:
    """SHA-256 of a body, whatever the order of its keys."""
    canonical = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def _submitted_before(session: Session, claim: IdempotencyRecord) -> JobRecord | None:
    """The job that was submitted under the key before. Raises IdempotencyMismatchError where that was another body."""
    before = access.answered_before(session, claim.project, claim.key)
    if before is None:
        return None
    if before.fingerprint != claim.fingerprint:
        raise IdempotencyMismatchError(
            f"this Idempotency-Key was used for job {before.job_id} with another body: use a new key for a new job"
        )
    return jobs.get(session, Scope(claim.project), before.job_id)


def _new_job(parsed: JobDocument, job_id: str, principal: Principal, now_s: float) -> JobRecord:
    return JobRecord(
        job_id=job_id,
        project=parsed.project,
        name=parsed.name,
        submitted_by=principal.token_id,
        spec=parsed.completed(),
        state=JobState.QUEUED.value,
        priority=parsed.priority,
        submitted_at_s=now_s,
        first_started_at_s=None,
        finished_at_s=None,
        declared_steps=parsed.training.steps,
        reported_steps=0,
        checkpoint_step=0,
        checkpoint_uri=parsed.checkpoint.uri,
        checkpoint_regions=[],
        generation=0,
        retries=0,
        not_before_s=0.0,
        cancel_requested=False,
        stop_cause=None,
        reasons=[plan_pending("accepted")],
        queue_position=None,
        version=1,
    )
