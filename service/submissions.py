"""Jobs that are submitted, as rows: all that come in at the same time are stored together, each whole or not at all."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

from scheduler.policies.quota_reasons import too_small
from scheduler.spec.job import JobDocument
from scheduler.spec.support import named_regions
from service import job_input
from service.db.records import IdempotencyRecord, JobRecord, QuotaRecord
from service.db.repositories import access, cluster, jobs, quotas
from service.db.session import Session
from service.errors import InvalidInputError
from service.lifecycle import Moment, record_birth
from service.reason_documents import to_document

NO_QUOTA = QuotaRecord(None, None)


@dataclass(frozen=True, slots=True)
class Submission:
    """A job as it was asked for, the row that it becomes, and the claim on its key if it came with one."""

    document: JobDocument
    record: JobRecord
    claim: IdempotencyRecord | None
    moment: Moment
    told: dict[str, Any]
    """What its first event says beside its name."""

    @property
    def names_regions(self) -> bool:
        return bool(self.document.placement.regions or named_regions(self.document))


def store(session: Session, submissions: Sequence[Submission]) -> list[JobRecord | None]:
    """Each as it is stored: it waits from then on. None for one whose key was used before, or that must be refused (it
    names a region there is none of, its deadline has passed): nothing of it is stored."""
    named = any(each.names_regions for each in submissions)
    regions = [region.region for region in cluster.regions(session)] if named else []
    accepted = [_is_acceptable(each, regions) for each in submissions]
    _claim(session, submissions, accepted)
    new = [each for each, is_accepted in zip(submissions, accepted, strict=True) if is_accepted]
    if not new:
        return [None] * len(submissions)
    quota_of = _projects(session, new)
    stored = [_with_quota(each, quota_of.get(each.record.project, NO_QUOTA)) for each in new]
    jobs.add(session, *stored)
    for each, record in zip(new, stored, strict=True):
        record_birth(
            session,
            "job",
            record.job_id,
            record.state,
            record.project,
            each.moment,
            name=record.name,
            **each.told,
        )
    rows = iter(stored)
    return [next(rows) if is_accepted else None for is_accepted in accepted]


def _is_acceptable(submission: Submission, regions: Collection[str]) -> bool:
    try:
        job_input.check_deadline(submission.document, submission.moment.at_s)
        if submission.names_regions:
            job_input.check_regions(submission.document, regions)
    except InvalidInputError:
        return False
    return True


def _claim(session: Session, submissions: Sequence[Submission], accepted: list[bool]) -> None:
    """Takes the keys of those that are accepted; one whose key is taken is not accepted any more."""
    claims = [
        (position, each.claim)
        for position, each in enumerate(submissions)
        if accepted[position] and each.claim is not None
    ]
    if claims:
        answers = access.remember_answers(session, [claim for _, claim in claims])
        for (position, _), is_new in zip(claims, answers, strict=True):
            accepted[position] = is_new


def _projects(session: Session, submissions: Sequence[Submission]) -> dict[str, QuotaRecord]:
    """Makes the projects that there are not yet; what those that there are may hold."""
    since_s = {each.record.project: each.record.submitted_at_s for each in submissions}
    quota_of = quotas.of_named(session, sorted(since_s))
    for project in sorted(since_s.keys() - quota_of.keys()):
        access.ensure_project(session, project, since_s[project])
    return quota_of


def _with_quota(submission: Submission, quota: QuotaRecord) -> JobRecord:
    """It waits until a planning round has looked at it; if its project may never hold so many GPUs, for that."""
    record = submission.record
    if quota.gpus is None:
        return record
    parallelism = submission.document.to_spec("", record.project, 0.0).parallelism
    least = (parallelism.stages_min or 1) * parallelism.gpus_per_stage
    if least <= quota.gpus:
        return record
    return replace(record, reasons=[to_document(too_small(record.project, quota.gpus, least))])
