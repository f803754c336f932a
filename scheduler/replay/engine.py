"""Replays a scenario under one policy on a virtual clock: the second driver of `decide`, beside the service.

The clock jumps from event to event: arrivals, ends of jobs, and, while jobs wait, moments at which a price changes
or becomes known. All events of one instant are taken before the policy is asked once. A job runs its actual steps at
the iteration time that `evaluate` gives for what it was granted; a snapshot holds only what it declared.
"""

from __future__ import annotations

import heapq
import math
import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from scheduler.check import check_plan
from scheduler.evaluate import Evaluation, evaluate
from scheduler.job import JobState
from scheduler.placement import Allocation
from scheduler.plan import Hold, Plan, Reject, Start
from scheduler.policies import PolicyConfig, decide
from scheduler.reasons import Reason
from scheduler.replay.errors import ReplayError
from scheduler.replay.jobs import ReplayJob
from scheduler.replay.meter import Generation, Meter
from scheduler.replay.records import AllocationRow, Decisions, JobRow, LinkRow, Rejection, ReplayResult
from scheduler.snapshot import RunningJob, Snapshot, WaitingJob
from scheduler.spec.scenario import Scenario

Progress = Callable[[int, int, float], None]
"""Called with jobs ended, jobs in all, and the virtual time in seconds from the start."""


def no_progress(done: int, total: int, now_s: float) -> None:
    """For whoever does not watch."""


def replay(
    scenario: Scenario, jobs: Sequence[ReplayJob], config: PolicyConfig, progress: Progress = no_progress
) -> ReplayResult:
    """Runs every job of the scenario to its end, or until it is told that it can never run.

    Raises PricesEndError where prices end before the jobs do, ReplayError where the policy's plan is not legal.
    """
    began_s = time.perf_counter()
    engine = _Engine(scenario, jobs, config, progress)
    engine.run()
    return ReplayResult(
        policy=config.name,
        seed=config.seed,
        jobs=tuple(engine.rows[job.spec.job_id] for job in jobs),
        allocations=tuple(engine.allocations),
        links=tuple(engine.links),
        rejections=tuple(engine.rejections),
        decisions=Decisions(tuple(engine.durations_s)),
        wall_s=time.perf_counter() - began_s,
    )


@dataclass(slots=True)
class _Run:
    """A job that holds an allocation. `end_s` counts from the start of the scenario."""

    job: ReplayJob
    allocation: Allocation
    evaluation: Evaluation
    start_s: float
    end_s: float

    def as_seen(self, now_s: float) -> RunningJob:
        """The job as a policy sees it: declared steps less those done, at least 1."""
        done = min(
            int((now_s - self.start_s) / self.evaluation.iteration_s),
            self.job.actual_steps,
        )
        return RunningJob(self.job.spec, self.allocation, max(1, self.job.spec.training.steps - done))


@dataclass(slots=True)
class _Engine:
    scenario: Scenario
    jobs: Sequence[ReplayJob]
    config: PolicyConfig
    progress: Progress
    meter: Meter = field(init=False)
    rows: dict[str, JobRow] = field(default_factory=dict)
    allocations: list[AllocationRow] = field(default_factory=list)
    links: list[LinkRow] = field(default_factory=list)
    rejections: list[Rejection] = field(default_factory=list)
    durations_s: list[float] = field(default_factory=list)
    waiting: dict[str, WaitingJob] = field(default_factory=dict)
    running: dict[str, _Run] = field(default_factory=dict)
    ends: list[tuple[float, str]] = field(default_factory=list)
    held: dict[str, tuple[Reason, ...]] = field(default_factory=dict)
    price_times_s: list[float] = field(init=False)
    by_id: dict[str, ReplayJob] = field(init=False)
    arrived: int = 0
    version: int = 0

    def __post_init__(self) -> None:
        self.meter = Meter(self.scenario)
        self.price_times_s = _price_times_s(self.scenario)
        self.by_id = {job.spec.job_id: job for job in self.jobs}

    def run(self) -> None:
        now_s = -math.inf
        while True:
            following_s = self._next_event_s(now_s)
            if following_s is None:
                break
            now_s = following_s
            self._finish(now_s)
            self._arrive(now_s)
            if self.waiting:
                self._apply(self._decide(now_s), now_s)
            self.progress(len(self.rows), len(self.jobs), now_s)
        for job_id in list(self.waiting):
            # Nothing runs, nobody comes, no price moves: what the policy still holds it would hold for ever.
            self._reject(job_id, self.held[job_id])
        self.progress(len(self.rows), len(self.jobs), max(now_s, 0.0))

    def _next_event_s(self, now_s: float) -> float | None:
        times = []
        if self.arrived < len(self.jobs):
            times.append(self.jobs[self.arrived].submit_s)
        if self.ends:
            times.append(self.ends[0][0])
        if self.waiting:
            index = bisect_right(self.price_times_s, now_s)
            if index < len(self.price_times_s):
                times.append(self.price_times_s[index])
        return min(times, default=None)

    def _finish(self, now_s: float) -> None:
        while self.ends and self.ends[0][0] <= now_s:
            _, job_id = heapq.heappop(self.ends)
            run = self.running.pop(job_id)
            spec = run.job.spec
            bill = self.meter.bill(
                Generation(
                    spec,
                    run.allocation.generation,
                    run.evaluation,
                    run.job.actual_steps,
                    run.start_s,
                    run.end_s,
                )
            )
            self.allocations.extend(bill.allocations)
            self.links.extend(bill.links)
            self.rows[job_id] = JobRow(
                job_id=job_id,
                tenant=spec.project,
                submit_s=run.job.submit_s,
                first_start_s=run.start_s,
                finish_s=run.end_s,
                jct_s=run.end_s - run.job.submit_s,
                steps=run.job.actual_steps,
                chain=run.evaluation.placement.describe(),
                generations=run.allocation.generation,
                preemptions=0,
                migrations=0,
                energy_kwh=bill.energy_kwh,
                electricity_usd=bill.electricity_usd,
                egress_usd=bill.egress_usd,
                rent_usd=bill.rent_usd,
                state=JobState.SUCCEEDED.value,
            )

    def _arrive(self, now_s: float) -> None:
        while self.arrived < len(self.jobs) and self.jobs[self.arrived].submit_s <= now_s:
            spec = self.jobs[self.arrived].spec
            self.waiting[spec.job_id] = WaitingJob(spec, spec.training.steps)
            self.arrived += 1

    def _decide(self, now_s: float) -> Plan:
        self.version += 1
        epoch_s = self.scenario.start_s + now_s
        snapshot = Snapshot(
            version=self.version,
            now_s=epoch_s,
            cluster=self.scenario.cluster,
            electricity={
                region: series.known(epoch_s) for region, series in self.scenario.electricity.items()
            },
            waiting=tuple(self.waiting.values()),
            running=tuple(run.as_seen(now_s) for run in self.running.values()),
        )
        began_s = time.perf_counter()
        plan = decide(snapshot, self.config)
        self.durations_s.append(time.perf_counter() - began_s)
        violations = check_plan(snapshot, plan)
        if violations:
            first = violations[0]
            raise ReplayError(
                f"policy {self.config.name} made a plan that is not legal at {now_s} s: job {first.job_id or '-'}, "
                f"rule {first.rule}: {first.detail}"
            )
        return plan

    def _apply(self, plan: Plan, now_s: float) -> None:
        self.held = {}
        for decision in plan.decisions:
            match decision:
                case Start():
                    self._start(decision, now_s)
                case Reject():
                    self._reject(decision.job_id, decision.reasons)
                case Hold():
                    self.held[decision.job_id] = decision.reasons

    def _start(self, start: Start, now_s: float) -> None:
        waiting = self.waiting.pop(start.job_id)
        job = self.by_id[start.job_id]
        evaluation = evaluate(
            waiting.spec, self.scenario.cluster, start.placement.segments, start.placement.cuts
        )
        allocation = Allocation(
            allocation_id=f"{start.job_id}/{waiting.generation}",
            job_id=start.job_id,
            generation=waiting.generation,
            placement=evaluation.placement,
            start_s=self.scenario.start_s + now_s,
        )
        end_s = now_s + job.actual_steps * evaluation.iteration_s
        self.running[start.job_id] = _Run(job, allocation, evaluation, now_s, end_s)
        heapq.heappush(self.ends, (end_s, start.job_id))

    def _reject(self, job_id: str, reasons: tuple[Reason, ...]) -> None:
        del self.waiting[job_id]
        job = self.by_id[job_id]
        self.rejections.append(Rejection(job_id, reasons))
        self.rows[job_id] = JobRow(
            job_id=job_id,
            tenant=job.spec.project,
            submit_s=job.submit_s,
            first_start_s=None,
            finish_s=None,
            jct_s=None,
            steps=0,
            chain=None,
            generations=0,
            preemptions=0,
            migrations=0,
            energy_kwh=0.0,
            electricity_usd=0.0,
            egress_usd=0.0,
            rent_usd=0.0,
            state=JobState.REJECTED.value,
        )


def _price_times_s(scenario: Scenario) -> list[float]:
    """When a price changes or is published, in seconds from the start; a region whose price never moves adds none."""
    times: set[float] = set()
    for series in scenario.electricity.values():
        if len(series.values) > 1:
            times.update(series.valid_from_s)
            times.update(series.known_at_s)
    return sorted(time_s - scenario.start_s for time_s in times if time_s > scenario.start_s)
