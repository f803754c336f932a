"""Storing what agents report: steps, checkpoints, log lines, busy fractions. Each report once, whatever is repeated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from agents.protocol import CheckpointReport, Report, StepReport
from service.checkpoints import regions_that_reach
from service.db import control_queries
from service.db.agent_queries import LiveProcess
from service.db.records import JobRecord, ProcessRecord
from service.db.repositories import allocations, cluster, events, jobs
from service.db.scope import EVERYTHING
from service.db.session import Session
from service.lifecycle import Moment
from service.report_rows import Reporter, Rows, reached_step


def store(
    session: Session,
    reports: Sequence[Report],
    processes: Mapping[str, ProcessRecord],
    moment: Moment,
    clock_offset_s: float,
) -> frozenset[str]:
    """Store new reports of these processes (key → process); ids of jobs that have now reported their last step.

    Times are stored on the server's clock: the agent's is ahead by `clock_offset_s`.

    A report of a key that is not among `processes` (another node's, or none that was ever launched) is dropped: it
    counts as stored, or its agent would send it for ever.
    """
    mine = [report for report in reports if report.key in processes]
    rows = Rows()
    rows.add(
        mine, {report.key: _reporter(processes[report.key]) for report in mine}, moment.at_s, clock_offset_s
    )
    rows.store(session)
    steps = [report for report in mine if isinstance(report, StepReport)]
    checkpoints = [report for report in mine if isinstance(report, CheckpointReport)]
    job_ids = {processes[key].job_id for key in {r.key for r in steps} | {r.key for r in checkpoints}}
    complete = set()
    for job_id in sorted(job_ids):
        job = jobs.get(session, EVERYTHING, job_id)
        if job is not None:
            reached = _store_progress(
                session,
                job,
                [report for report in steps if processes[report.key].job_id == job_id],
                [report for report in checkpoints if processes[report.key].job_id == job_id],
                processes,
                moment,
            )
            if reached >= job.declared_steps:
                complete.add(job_id)
    return frozenset(complete)


def generation_of(process: ProcessRecord) -> int:
    """The generation of the job that the process belongs to: it stands in its launch document."""
    return int(process.launch["generation"])


def _reporter(process: ProcessRecord) -> Reporter:
    return LiveProcess(
        key=process.key,
        node_id=process.node_id,
        desired=process.desired,
        state=process.state,
        project=process.project,
        job_id=process.job_id,
        stage=process.stage,
        generation=generation_of(process),
    )


def checkpoint_regions(session: Session, process: ProcessRecord, uri: str) -> list[str]:
    """The regions that can reach a checkpoint of the process's gang; empty where any can."""
    writers = allocations.processes_of(session, process.allocation_id)
    nodes = [cluster.node(session, node_id) for node_id in sorted({writer.node_id for writer in writers})]
    return sorted(
        regions_that_reach(
            uri,
            [node for node in nodes if node is not None],
            lambda addresses: control_queries.regions_of_addresses(session, addresses),
        )
    )


def _store_progress(
    session: Session,
    job: JobRecord,
    steps: Sequence[StepReport],
    checkpoints: Sequence[CheckpointReport],
    processes: Mapping[str, ProcessRecord],
    moment: Moment,
) -> int:
    """The step that the job has reached."""
    changes: dict[str, object] = {}
    reached = reached_step(job, [(generation_of(processes[report.key]), report.step) for report in steps])
    if reached > job.reported_steps:
        changes["reported_steps"] = reached
    newest = max(checkpoints, key=lambda report: report.step, default=None)
    if newest is not None and newest.step > job.checkpoint_step:
        changes |= {
            "checkpoint_step": min(newest.step, job.declared_steps),
            "checkpoint_uri": newest.uri,
            "checkpoint_regions": checkpoint_regions(session, processes[newest.key], newest.uri),
        }
        events.append(
            session,
            project=job.project,
            at_s=moment.at_s,
            kind="job.checkpoint",
            object_kind="job",
            object_id=job.job_id,
            actor=moment.actor,
            data={"step": newest.step, "uri": newest.uri},
        )
    if changes:
        jobs.change(session, job, **changes)
    return reached
