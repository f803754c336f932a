"""Replays a scenario under one policy on a virtual clock: the second driver of `decide`, beside the service.

The clock jumps from event to event: arrivals, ends of jobs and of stops, nodes that fail or come back, and, while jobs
wait (or, under a policy that changes running jobs, while such jobs run), moments at which a price changes or becomes
known. All events of one instant are taken before the policy is asked once. A job runs its actual steps at the pace that
`truth.py` gives for what it was granted; a snapshot holds only what it declared.
"""

from __future__ import annotations

import heapq
import math
import time
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass, field, replace

from scheduler import policies
from scheduler.datasets import brought_to
from scheduler.job import JobState
from scheduler.placement import Allocation
from scheduler.plan import Hold, Move, Plan, Preempt, Reject, Start
from scheduler.policies import PolicyConfig
from scheduler.reasons import Reason
from scheduler.replay.accounts import Account
from scheduler.replay.asking import Asker, asker_of
from scheduler.replay.faults import faults_of
from scheduler.replay.jobs import ReplayJob
from scheduler.replay.meter import Arrival, Meter
from scheduler.replay.outages import Outages, beyond, hit_by
from scheduler.replay.promises import Pending, that_begin
from scheduler.replay.records import AllocationRow, Decisions, JobRow, LinkRow, Rejection, ReplayResult
from scheduler.replay.running import Run
from scheduler.replay.truth import Truth
from scheduler.restart import restart_s
from scheduler.snapshot import Promise, RunningJob, Snapshot, WaitingJob
from scheduler.spec.scenario import Scenario

RECENT_JOBS = 50
"""How many of the jobs that ended last a snapshot shows."""

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
        node_faults=engine.outages.begun,
        decisions=Decisions(tuple(engine.asker.durations_s)),
        wall_s=time.perf_counter() - began_s,
    )


@dataclass(slots=True)
class _Engine:
    scenario: Scenario
    jobs: Sequence[ReplayJob]
    config: PolicyConfig
    progress: Progress
    meter: Meter = field(init=False)
    truth: Truth = field(init=False)
    replans: bool = field(init=False)
    price_times_s: list[float] = field(init=False)
    accounts: dict[str, Account] = field(init=False)
    outages: Outages = field(init=False)
    asker: Asker = field(init=False)
    rows: dict[str, JobRow] = field(default_factory=dict)
    allocations: list[AllocationRow] = field(default_factory=list)
    links: list[LinkRow] = field(default_factory=list)
    rejections: list[Rejection] = field(default_factory=list)
    waiting: dict[str, WaitingJob] = field(default_factory=dict)
    running: dict[str, Run] = field(default_factory=dict)
    in_region: dict[str, dict[str, Run]] = field(init=False)
    """The running jobs that hold anything in each region."""
    pending: list[Pending] = field(default_factory=list)
    stopping: set[str] = field(default_factory=set)
    ends: list[tuple[float, str, int]] = field(default_factory=list)
    """(when, job, generation), one for each end that was ever expected; a stop brings another."""
    recent: deque[str] = field(default_factory=lambda: deque(maxlen=RECENT_JOBS))
    refused: dict[str, tuple[Reason, ...]] = field(default_factory=dict)
    """Jobs that were refused while nodes were down: they wait again when one comes back."""
    cooling: list[tuple[float, str]] = field(default_factory=list)
    """When a job may go back to where a fault hit it."""
    arrivals: list[float] = field(default_factory=list)
    """When state that travels arrives, and leaves its bandwidth."""
    arrived: int = 0
    version: int = 0

    def __post_init__(self) -> None:
        self.meter = Meter(self.scenario)
        self.truth = Truth(self.scenario.cluster, self.scenario.truth)
        self.replans = policies.POLICIES[self.config.name].replans
        self.price_times_s = _price_times_s(self.scenario)
        self.in_region = {region: {} for region in self.scenario.cluster.regions}
        self.accounts = {job.spec.job_id: Account(job) for job in self.jobs}
        self.outages = Outages(self.scenario.cluster, faults_of(self.scenario))
        self.asker = asker_of(self.config, self, self.price_times_s)

    def run(self) -> None:
        now_s = -math.inf
        while True:
            following_s = self._next_event_s(now_s)
            if following_s is None:
                break
            now_s = following_s
            self._end_runs(now_s)
            self._fail_nodes(now_s)
            self._cool_down(now_s)
            self._arrive(now_s)
            self._begin(now_s)
            while self.arrivals and self.arrivals[0] <= now_s:
                heapq.heappop(self.arrivals)
                self.asker.unsettle()
            if self._may_decide():
                self._apply(self.asker.ask(now_s), now_s)
            self.progress(len(self.rows), len(self.jobs), now_s)
        if self.waiting:
            # Nothing runs, nobody comes, no price moves: what the policy still holds it would hold for ever.
            why = self.asker.why(now_s)
            for job_id in list(self.waiting):
                self._reject(job_id, why[job_id])
        for job_id, reasons in self.refused.items():
            self._reject(job_id, reasons)
        self.progress(len(self.rows), len(self.jobs), max(now_s, 0.0))

    def _may_decide(self) -> bool:
        """Whether there is anything to decide: jobs that wait, or running ones that the policy may change."""
        return bool(self.waiting) or (self.replans and any(run.elastic for run in self.running.values()))

    def _next_event_s(self, now_s: float) -> float | None:
        times = []
        if self.arrived < len(self.jobs):
            times.append(self.jobs[self.arrived].submit_s)
        while self.ends and not self._is_expected(*self.ends[0]):
            heapq.heappop(self.ends)
        if self.ends:
            times.append(self.ends[0][0])
        if self._may_decide():
            index = bisect_right(self.price_times_s, now_s)
            if index < len(self.price_times_s):
                times.append(self.price_times_s[index])
        if times or self.waiting or self.refused:
            times += [self.cooling[0][0]] if self.cooling else []
            fault_s = self.outages.next_s()
            times += [] if fault_s is None else [fault_s]
        return min(times, default=None)

    def _is_expected(self, end_s: float, job_id: str, generation: int) -> bool:
        """Whether this is still how the job's generation will end: it has not ended, and not been stopped since."""
        run = self.running.get(job_id)
        return run is not None and run.allocation.generation == generation and run.end_s == end_s

    def _end_runs(self, now_s: float) -> None:
        while self.ends and self.ends[0][0] <= now_s:
            end_s, job_id, generation = heapq.heappop(self.ends)
            if self._is_expected(end_s, job_id, generation):
                self._end(self.running[job_id])

    def _end(self, run: Run) -> None:
        """The generation is over: it is billed, and the job has finished, or waits again, or goes on by a promise."""
        job_id = run.job.spec.job_id
        del self.running[job_id]
        for region in run.regions:
            del self.in_region[region][job_id]
        self.stopping.discard(job_id)
        if run.travelling(run.end_s):
            self.asker.unsettle()
        else:
            self.asker.left(run.allocation.placement)
        account, generation = self.accounts[job_id], run.generation()
        bill = self.meter.bill(generation)
        account.end(generation, bill, run.leaves)
        self.allocations.extend(bill.allocations)
        self.links.extend(bill.links)
        if run.stopped_s is None:
            self.rows[job_id] = account.row(JobState.SUCCEEDED, run.end_s)
            self.recent.appendleft(job_id)
        elif all(each.job_id != job_id for each in self.pending):
            self._wait(job_id, run.end_s)

    def _wait(self, job_id: str, now_s: float) -> None:
        job = self.accounts[job_id].waiting(now_s, self.scenario.start_s)
        self.waiting[job_id] = job
        self.asker.waits(job)

    def _fail_nodes(self, now_s: float) -> None:
        for loss in self.outages.until(now_s):
            self.asker.unsettle()
            if loss is None:
                for job_id in self.refused:
                    self._wait(job_id, now_s)
                self.refused.clear()
                continue
            for run in hit_by(loss, self.running.values()):
                self._hit(run, loss.pool[0], now_s)
            for pending in beyond(loss.pool, self.pending, self._staying(), self.outages.cluster):
                self.pending.remove(pending)
                if pending.job_id not in self.running:
                    self._wait(pending.job_id, now_s)

    def _hit(self, run: Run, region: str, now_s: float) -> None:
        """A node under the job fails: the generation ends, and where it was to go its lost state cannot."""
        job_id, plan = run.job.spec.job_id, self.scenario.faults
        run.fail(now_s, self.scenario.cluster.restart.checkpoint_every_s)
        self.pending = [each for each in self.pending if each.job_id != job_id]
        account = self.accounts[job_id]
        account.faults += 1
        if plan is not None and plan.section.cool_down > 0:
            account.avoids[region] = now_s + plan.section.cool_down
            heapq.heappush(self.cooling, (account.avoids[region], job_id))
        self._end(run)

    def _cool_down(self, now_s: float) -> None:
        while self.cooling and self.cooling[0][0] <= now_s:
            _, job_id = heapq.heappop(self.cooling)
            if job_id in self.waiting:
                self._wait(job_id, now_s)

    def _staying(self) -> list[Run]:
        return [run for run in self.running.values() if run.stopped_s is None]

    def _arrive(self, now_s: float) -> None:
        while self.arrived < len(self.jobs) and self.jobs[self.arrived].submit_s <= now_s:
            spec = self.jobs[self.arrived].spec
            self._wait(spec.job_id, now_s)
            self.arrived += 1

    def whole(self, now_s: float) -> Snapshot:
        """Everything that a policy may look at (`asking.View`)."""
        return replace(
            self.prices(now_s),
            waiting=tuple(self.waiting.values()),
            running=tuple(self._seen(run, now_s) for run in self.running.values()),
            promised=tuple(each.promise for each in self.pending),
            recent=tuple(self.accounts[job_id].job.spec for job_id in self.recent),
        )

    def _seen(self, run: Run, now_s: float) -> RunningJob:
        """A running job as a policy sees it; of one with a budget, what it has cost until now as well."""
        seen = run.as_seen(now_s, self.scenario.start_s)
        avoids = self.accounts[seen.spec.job_id].avoided(now_s)
        if avoids:
            seen = replace(seen, avoid_regions=avoids)
        if seen.spec.budget_usd is None:
            return seen
        return replace(seen, generation_usd=self.meter.bill(run.so_far(now_s)).paid_usd)

    def around(self, now_s: float, waiting: Iterable[str], regions: Set[str]) -> Snapshot:
        """Some of the waiting jobs, and all others that are in these regions (`asking.View`)."""
        epoch_s = self.scenario.start_s
        holding = {job_id: run for region in regions for job_id, run in self.in_region[region].items()}
        return replace(
            self.prices(now_s),
            waiting=tuple(self.waiting[job_id] for job_id in waiting),
            running=tuple(run.as_held(now_s, epoch_s) for run in holding.values()),
            promised=tuple(each.promise for each in self.pending if not regions.isdisjoint(each.regions)),
        )

    def prices(self, now_s: float) -> Snapshot:
        """The cluster and the prices alone (`asking.View`)."""
        self.version += 1
        epoch_s = self.scenario.start_s + now_s
        known = {region: series.known(epoch_s) for region, series in self.scenario.electricity.items()}
        return Snapshot(self.version, epoch_s, self.outages.cluster, known, shares=self.scenario.shares)

    def _apply(self, plan: Plan, now_s: float) -> None:
        """Starts have the first right to what is free, then come the moves, each in the order of the plan."""
        for start in plan.starts:
            self._promise(start, self.waiting.pop(start.job_id))
        for decision in plan.decisions:
            match decision:
                case Move():
                    self._move(decision, now_s)
                case Preempt():
                    self._preempt(decision, now_s)
                case Reject():
                    self._refuse(decision)
                case Start() | Hold():
                    pass
        self._begin(now_s)

    def _promise(self, decision: Start | Move, job: WaitingJob) -> None:
        promise = Promise(
            job.spec, decision.placement, job.remaining_steps, job.generation, decision.transfers
        )
        self.pending.append(Pending(promise, job.state))

    def _move(self, move: Move, now_s: float) -> None:
        run = self.running[move.job_id]
        spec = run.job.spec
        self._stop(run, now_s)
        done = run.done_before + run.steps_by(now_s)
        promise = Promise(
            spec=spec,
            placement=move.placement,
            remaining_steps=max(1, spec.training.steps - done),
            generation=run.allocation.generation + 1,
            transfers=move.transfers,
        )
        self.pending.append(Pending(promise, run.leaves))
        self._end_if_over(run, now_s)

    def _preempt(self, preempt: Preempt, now_s: float) -> None:
        run = self.running[preempt.job_id]
        self.accounts[preempt.job_id].preemptions += 1
        self._stop(run, now_s)
        self._end_if_over(run, now_s)

    def _stop(self, run: Run, now_s: float) -> None:
        run.stop(self.scenario.cluster, now_s, self.scenario.start_s)
        self.stopping.add(run.job.spec.job_id)
        heapq.heappush(self.ends, (run.end_s, *run.key))

    def _end_if_over(self, run: Run, now_s: float) -> None:
        """A job that had nothing to write leaves at once."""
        if run.end_s <= now_s:
            self._end(run)

    def _begin(self, now_s: float) -> None:
        """What was promised begins where all that it needs is free now."""
        if not self.pending:
            return
        held = ((run.allocation.placement, run.travelling(now_s)) for run in self.running.values())
        for each in that_begin(self.pending, held, self.stopping, self.outages.cluster):
            self.pending.remove(each)
            self._begin_run(each, now_s)

    def _begin_run(self, pending: Pending, now_s: float) -> None:
        promise, cluster = pending.promise, self.scenario.cluster
        account, placement = self.accounts[pending.job_id], promise.placement
        carried = [self.truth.carried(each) for each in promise.transfers]
        fixed_s, first = cluster.restart.fixed_s, placement.segments[0].region
        run = Run.beginning(
            job=account.job,
            allocation=Allocation(
                allocation_id=f"{pending.job_id}/{promise.generation}",
                job_id=pending.job_id,
                generation=promise.generation,
                placement=placement,
                start_s=self.scenario.start_s + now_s,
            ),
            pace=self.truth.pace(promise.spec, promise.generation, placement),
            done_before=account.done,
            spent_usd=account.spent_usd,
            state=pending.state,
            arrivals=tuple(
                Arrival(each, now_s + fixed_s + real.duration_s, real.duration_s)
                for each, real in zip(promise.transfers, carried, strict=True)
            ),
            start_s=now_s,
            ready_s=None
            if promise.generation == 1
            else now_s + restart_s(promise.spec, cluster, placement, carried),
            brought=account.brought | {first},
            brings=() if first in account.brought else brought_to(promise.spec, cluster.links, first) or (),
        )
        account.begin(now_s, placement, migrates=bool(carried))
        self.running[pending.job_id] = run
        for region in run.regions:
            self.in_region[region][pending.job_id] = run
        for arrival in run.arrivals:
            heapq.heappush(self.arrivals, arrival.at_s)
        heapq.heappush(self.ends, (run.end_s, *run.key))

    def _refuse(self, decision: Reject) -> None:
        """A refusal is final on the whole cluster only."""
        if self.outages.any_down:
            del self.waiting[decision.job_id]
            self.refused[decision.job_id] = decision.reasons
        else:
            self._reject(decision.job_id, decision.reasons)

    def _reject(self, job_id: str, reasons: tuple[Reason, ...]) -> None:
        """It can never run, or never go on: what it has done until then is lost."""
        self.waiting.pop(job_id, None)
        account = self.accounts[job_id]
        self.rejections.append(Rejection(job_id, reasons))
        self.rows[job_id] = account.row(
            JobState.FAILED if account.generations else JobState.REJECTED, finish_s=None
        )


def _price_times_s(scenario: Scenario) -> list[float]:
    """When a price changes or is published, in seconds from the start; a region whose price never moves adds none."""
    times: set[float] = set()
    for series in scenario.electricity.values():
        if len(series.values) > 1:
            times.update(series.valid_from_s)
            times.update(series.known_at_s)
    return sorted(time_s - scenario.start_s for time_s in times if time_s > scenario.start_s)
