"""A job's row as the document that was submitted, and as the planner takes it."""

from __future__ import annotations

from scheduler.job import JobSpec
from scheduler.spec.job import JobDocument, accepted_job
from service.db.records import JobRecord


def document_of(job: JobRecord) -> JobDocument:
    """What was submitted, with its defaults. What has become a rule since then does not concern it."""
    return accepted_job(job.spec)


def spec_of(job: JobRecord) -> JobSpec:
    """The job as the planner takes it."""
    return document_of(job).to_spec(job.job_id, job.project, job.submitted_at_s)
