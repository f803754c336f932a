"""What a job's stages report: steps and log lines."""

from __future__ import annotations

from dataclasses import dataclass

from scheduler.job import FINAL_JOB_STATES
from service.access import Principal
from service.db.records import LogRecord, StepRecord
from service.db.repositories import reports
from service.db.session import Session
from service.jobs import find
from service.services import Services


@dataclass(frozen=True, slots=True)
class LogPart:
    """Lines of a job, and whether its state is final: then nothing follows what is stored."""

    job_id: str
    state: str
    lines: list[LogRecord]

    @property
    def is_final(self) -> bool:
        return self.state in FINAL_JOB_STATES


async def steps(
    services: Services, principal: Principal, job_id: str, after_step: int, limit: int
) -> list[StepRecord]:
    """The series of a job above a step, in order."""

    def work(session: Session) -> list[StepRecord]:
        job = find(session, principal.scope, job_id)
        return reports.steps(session, principal.scope, job.job_id, after_step, limit)

    return await services.db.read(work)


async def logs(
    services: Services, principal: Principal, job_id: str, *, stage: int | None, after: int, limit: int
) -> LogPart:
    """Lines with a number above `after`, in the order in which they arrived."""

    def work(session: Session) -> LogPart:
        job = find(session, principal.scope, job_id)
        lines = reports.log_lines(
            session, principal.scope, job.job_id, stage=stage, after_seq=after, limit=limit
        )
        return LogPart(job.job_id, job.state, lines)

    return await services.db.read(work)


async def log_tail(
    services: Services, principal: Principal, job_id: str, *, stage: int | None, limit: int
) -> LogPart:
    """The newest lines, in the order in which they arrived."""

    def work(session: Session) -> LogPart:
        job = find(session, principal.scope, job_id)
        lines = reports.last_log_lines(session, principal.scope, job.job_id, stage=stage, limit=limit)
        return LogPart(job.job_id, job.state, lines)

    return await services.db.read(work)
