"""Promises as rows: made with their plan, taken back where they cannot be kept. Each leaves an event at its job."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from scheduler.job import JobState
from scheduler.plan import Move, Start
from service import placements, reason_documents
from service.control.errors import StalePlanError
from service.control.gangs import Grounds
from service.db import control_queries
from service.db.control_queries import Waiting
from service.db.records import JobRecord
from service.db.repositories import events, jobs, promises
from service.db.scope import EVERYTHING
from service.db.session import Session
from service.lifecycle import Moment
from service.promises import Broken

START = "start"
MOVE = "move"


def promise(session: Session, decisions: Sequence[Start | Move], version: int, grounds: Grounds) -> None:
    """Promise each its placement, in this order of rights. Raises StalePlanError for a job that waits no more."""
    found = [(decision, _job(session, decision)) for decision in decisions]
    promises.add(session, [_row(decision, job, version, grounds) for decision, job in found])
    for decision, job in found:
        _tell(session, job, "job.promised", grounds.moment, _facts(decision, job))
        if job.state == JobState.QUEUED:
            chain = decision.placement.describe()
            reasons = [reason_documents.place_promised(chain)]
            control_queries.set_waiting(session, [Waiting(job.job_id, reasons, None)])


def take_back(session: Session, broken: Broken, moment: Moment) -> None:
    """The promise cannot be kept: its job waits as any other, and is told why."""
    job = jobs.get(session, EVERYTHING, broken.job_id)
    if job is None or not promises.drop(session, broken.job_id):
        raise StalePlanError(f"nothing is promised to job {broken.job_id} any more")
    _tell(session, job, "job.promise_broken", moment, {"reason": broken.detail})
    if job.state == JobState.QUEUED:
        reasons = [reason_documents.promise_broken(broken.detail)]
        control_queries.set_waiting(session, [Waiting(job.job_id, reasons, None)])


def _job(session: Session, decision: Start | Move) -> JobRecord:
    job = jobs.get(session, EVERYTHING, decision.job_id)
    wanted = JobState.STOPPING if isinstance(decision, Move) else JobState.QUEUED
    if job is None or job.state != wanted or job.cancel_requested:
        raise StalePlanError(f"job {decision.job_id} does not wait any more")
    return job


def _row(decision: Start | Move, job: JobRecord, version: int, grounds: Grounds) -> dict[str, Any]:
    return {
        "project": job.project,
        "job_id": job.job_id,
        "kind": MOVE if isinstance(decision, Move) else START,
        "generation": job.generation + 1,
        "placement": placements.to_document(decision.placement),
        "transfers": placements.transfers_to_documents(decision.transfers),
        "predicted_iteration_s": decision.predicted_iteration_s,
        "why": decision.why,
        "snapshot_version": version,
        "epoch": grounds.epoch,
        "made_at_s": grounds.moment.at_s,
    }


def _facts(decision: Start | Move, job: JobRecord) -> dict[str, Any]:
    return {
        "kind": MOVE if isinstance(decision, Move) else START,
        "generation": job.generation + 1,
        "chain": decision.placement.describe(),
        "why": decision.why,
        "predicted_iteration_s": decision.predicted_iteration_s,
    }


def _tell(session: Session, job: JobRecord, kind: str, moment: Moment, data: dict[str, Any]) -> None:
    events.append(
        session,
        project=job.project,
        at_s=moment.at_s,
        kind=kind,
        object_kind="job",
        object_id=job.job_id,
        actor=moment.actor,
        data=data,
    )
