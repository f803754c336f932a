"""Reports of processes as rows: steps, lines of logs, busy fractions; and how far a job has come by its steps."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from agents.protocol import BusyReport, LogReport, Report, StepReport
from scheduler.job import LIVE_JOB_STATES, JobState
from service.db import agent_queries
from service.db.session import Session


class Reporter(Protocol):
    """What of a process is stored with its reports."""

    @property
    def key(self) -> str: ...
    @property
    def project(self) -> str: ...
    @property
    def job_id(self) -> str: ...
    @property
    def stage(self) -> int: ...
    @property
    def generation(self) -> int: ...


class Progress(Protocol):
    """What is known of how far a job is."""

    @property
    def state(self) -> str: ...
    @property
    def generation(self) -> int: ...
    @property
    def declared_steps(self) -> int: ...
    @property
    def reported_steps(self) -> int: ...


@dataclass(slots=True)
class Rows:
    """To be stored, of any number of heartbeats."""

    steps: list[dict[str, object]] = field(default_factory=list)
    lines: list[dict[str, object]] = field(default_factory=list)
    busy: dict[str, float] = field(default_factory=dict)
    """Key → fraction."""

    def add(
        self, reports: Sequence[Report], reporters: Mapping[str, Reporter], now_s: float, ahead_s: float
    ) -> None:
        """Those of one heartbeat, all of these processes (by key), whose agent's clock is ahead by `ahead_s`."""

        def server_time_s(at_s: float) -> float:
            """No report is of the future, not even where the agent's clock was set back after it was written."""
            return min(at_s - ahead_s, now_s)

        for report in reports:
            reporter = reporters[report.key]
            if isinstance(report, StepReport):
                self.steps.append(_step_row(report, reporter, server_time_s(report.at_s)))
            elif isinstance(report, LogReport):
                self.lines += _line_rows(report, reporter, server_time_s(report.at_s))
        self.busy |= _mean_busy([report for report in reports if isinstance(report, BusyReport)])

    def store(self, session: Session) -> None:
        agent_queries.store_steps(session, self.steps)
        agent_queries.store_lines(session, self.lines)
        agent_queries.set_busy_fractions(session, self.busy)


def reached_step(job: Progress, steps: Iterable[tuple[int, int]]) -> int:
    """The step that a job has reached when it is told of these (generation, step): those of its current generation
    count while it lives."""
    is_live = JobState(job.state) in LIVE_JOB_STATES
    current = [step for generation, step in steps if is_live and generation == job.generation]
    return max(job.reported_steps, min(max(current, default=0), job.declared_steps))


def _step_row(report: StepReport, reporter: Reporter, at_s: float) -> dict[str, object]:
    return {
        "job_id": reporter.job_id,
        "step": report.step,
        "project": reporter.project,
        "generation": reporter.generation,
        "loss": report.loss,
        "step_time_s": report.step_time_s,
        "tokens": report.tokens,
        "at_s": at_s,
        "grad_norm": report.grad_norm,
        "compute_s": report.compute_s,
        "send_s": report.send_s,
        "drift": report.drift,
        "drift_bound": report.drift_bound,
        "rolled_back": report.rolled_back,
    }


def _line_rows(report: LogReport, reporter: Reporter, at_s: float) -> list[dict[str, object]]:
    return [
        {
            "project": reporter.project,
            "job_id": reporter.job_id,
            "key": reporter.key,
            "stage": reporter.stage,
            "line": report.first_line + offset,
            # PostgreSQL has no NUL in texts.
            "text": line.replace("\x00", "\N{REPLACEMENT CHARACTER}"),
            "at_s": at_s,
        }
        for offset, line in enumerate(report.lines)
    ]


def _mean_busy(reports: Sequence[BusyReport]) -> dict[str, float]:
    """Key → busy fraction over all its reports of this heartbeat, weighted by their durations."""
    busy_s: dict[str, float] = defaultdict(float)
    total_s: dict[str, float] = defaultdict(float)
    for report in reports:
        duration_s = max(0.0, report.to_s - report.from_s)
        busy_s[report.key] += report.busy_fraction * duration_s
        total_s[report.key] += duration_s
    return {key: min(1.0, busy_s[key] / total) for key, total in total_s.items() if total > 0}
