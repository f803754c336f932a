"""What a plan says to the jobs it does not start: their reasons and places in the queue, or that they never can run."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from scheduler.job import JobState
from scheduler.plan import Hold, Reject
from scheduler.reasons import Reason, ReasonCode
from service.db import control_queries
from service.db.control_queries import Waiting
from service.db.records import JobRecord, NodeRecord
from service.db.repositories import cluster, events, jobs
from service.db.session import Session
from service.lifecycle import Moment, NodeState, move_job
from service.reason_documents import to_documents


def store(
    session: Session,
    holds: Sequence[Hold],
    rejects: Sequence[Reject],
    never: Collection[str],
    moment: Moment,
) -> None:
    """Write what changed; a job that waits as before is left alone. `never` are those of the rejected that could not
    run with all nodes there either.

    A job that no longer waits is passed over: somebody else has moved it, and its next round is not this one.
    """
    waiting = {job.job_id: job for job in jobs.in_states(session, (JobState.QUEUED,))}
    nodes = cluster.nodes(session)
    missing = [node for node in nodes if node.state != NodeState.READY]
    waits: list[Waiting] = []
    for hold in holds:
        job = waiting.get(hold.job_id)
        if job is not None:
            waits += _wait(session, job, hold.position, _with_checkpoint(job, hold.reasons, nodes), moment)
    for reject in rejects:
        job = waiting.get(reject.job_id)
        if job is None:
            continue
        # What cannot run on what is left may run on what was there.
        if reject.job_id not in never or job.generation > 0:
            reasons = _with_checkpoint(job, (*_missing(missing), *reject.reasons), nodes)
            waits += _wait(session, job, None, reasons, moment)
        else:
            _refuse(session, job, reject.reasons, moment)
    control_queries.set_waiting(session, waits)


def _wait(
    session: Session, job: JobRecord, position: int | None, reasons: Sequence[Reason], moment: Moment
) -> list[Waiting]:
    """What is to be written of the job: nothing where it waits as before."""
    documents = to_documents(reasons)
    if documents == job.reasons and position == job.queue_position:
        return []
    if _codes(documents) != _codes(job.reasons):
        events.append(
            session,
            project=job.project,
            at_s=moment.at_s,
            kind="job.held",
            object_kind="job",
            object_id=job.job_id,
            actor=moment.actor,
            data={"reasons": documents, "position": position},
        )
    return [Waiting(job.job_id, documents, position)]


def _refuse(session: Session, job: JobRecord, reasons: Sequence[Reason], moment: Moment) -> None:
    documents = to_documents(reasons)
    data = {"reasons": documents}
    move_job(
        session,
        job,
        JobState.REJECTED,
        moment,
        data=data,
        reasons=documents,
        queue_position=None,
        finished_at_s=moment.at_s,
    )


def _with_checkpoint(
    job: JobRecord, reasons: Sequence[Reason], nodes: Collection[NodeRecord]
) -> tuple[Reason, ...]:
    """A job whose checkpoint no node can reach at present waits for one that can: that is the reason."""
    if not (job.checkpoint_step and job.checkpoint_regions):
        return tuple(reasons)
    if any(node.region in job.checkpoint_regions and node.state == NodeState.READY for node in nodes):
        return tuple(reasons)
    regions = ", ".join(job.checkpoint_regions)
    detail = (
        f"its checkpoint of step {job.checkpoint_step} is in {regions}, where no node is ready at present"
    )
    return (Reason(ReasonCode.WAITING_FOR_NODE, detail), *reasons)


def _missing(nodes: Sequence[NodeRecord]) -> tuple[Reason, ...]:
    if not nodes:
        return ()
    named = ", ".join(f"{node.node_id} ({node.state})" for node in nodes[:5])
    detail = f"{len(nodes)} of the cluster's nodes take no work at present: {named}"
    return (Reason(ReasonCode.WAITING_FOR_NODE, detail),)


def _codes(reasons: Sequence[Any]) -> list[Any]:
    return [reason.get("code") for reason in reasons]
