"""Storing what agents report: steps, checkpoints, log lines, busy fractions. Each report once, whatever is repeated."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from sqlalchemy.orm import Session

from agents.protocol import BusyReport, CheckpointReport, LogReport, Report, StepReport
from scheduler.job import LIVE_JOB_STATES, JobState
from service.checkpoints import regions_that_reach
from service.db import agent_queries, control_queries
from service.db.records import JobRecord, ProcessRecord
from service.db.repositories import allocations, cluster, events, jobs
from service.db.scope import EVERYTHING
from service.lifecycle import Moment


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
    steps = [report for report in mine if isinstance(report, StepReport)]

    def server_time_s(at_s: float) -> float:
        """No report is of the future, not even where the agent's clock was set back after it was written."""
        return min(at_s - clock_offset_s, moment.at_s)

    agent_queries.store_steps(
        session, [_step_row(report, processes[report.key], server_time_s(report.at_s)) for report in steps]
    )
    agent_queries.store_lines(
        session,
        [
            _line_row(report, processes[report.key], offset, server_time_s(report.at_s))
            for report in mine
            if isinstance(report, LogReport)
            for offset in range(len(report.lines))
        ],
    )
    agent_queries.set_busy_fractions(
        session, _mean_busy([report for report in mine if isinstance(report, BusyReport)])
    )
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
    current = [
        report.step
        for report in steps
        if generation_of(processes[report.key]) == job.generation and JobState(job.state) in LIVE_JOB_STATES
    ]
    reached = min(max(current, default=0), job.declared_steps)
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
    return max(reached, job.reported_steps)


def _step_row(report: StepReport, process: ProcessRecord, at_s: float) -> dict[str, object]:
    return {
        "job_id": process.job_id,
        "step": report.step,
        "project": process.project,
        "generation": generation_of(process),
        "loss": report.loss,
        "step_time_s": report.step_time_s,
        "tokens": report.tokens,
        "at_s": at_s,
    }


def _line_row(report: LogReport, process: ProcessRecord, offset: int, at_s: float) -> dict[str, object]:
    return {
        "project": process.project,
        "job_id": process.job_id,
        "key": process.key,
        "stage": process.stage,
        "line": report.first_line + offset,
        # PostgreSQL has no NUL in texts.
        "text": report.lines[offset].replace("\x00", "\N{REPLACEMENT CHARACTER}"),
        "at_s": at_s,
    }


def _mean_busy(reports: Sequence[BusyReport]) -> dict[str, float]:
    """Key → busy fraction over all its reports of this heartbeat, weighted by their durations."""
    busy_s: dict[str, float] = defaultdict(float)
    total_s: dict[str, float] = defaultdict(float)
    for report in reports:
        duration_s = max(0.0, report.to_s - report.from_s)
        busy_s[report.key] += report.busy_fraction * duration_s
        total_s[report.key] += duration_s
    return {key: min(1.0, busy_s[key] / total) for key, total in total_s.items() if total > 0}
