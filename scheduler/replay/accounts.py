"""What a job has come to so far, over its generations: the making of its row in jobs.csv."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from scheduler.job import Elasticity, JobState
from scheduler.placement import Placement
from scheduler.replay.jobs import ReplayJob
from scheduler.replay.meter import Bill, Generation
from scheduler.replay.records import JobRow
from scheduler.snapshot import StateSpan, WaitingJob


@dataclass(slots=True)
class Account:
    """`done` counts the steps that generations which have ended did and kept."""

    job: ReplayJob
    generations: int = 0
    preemptions: int = 0
    migrations: int = 0
    faults: int = 0
    done: int = 0
    stages: int | None = None
    """Of its last generation."""
    first_start_s: float | None = None
    chain: str | None = None
    bills: list[Bill] = field(default_factory=list)
    state: tuple[StateSpan, ...] = ()
    """Where its checkpoint lies, once a generation has ended."""
    brought: frozenset[str] = frozenset()
    """Regions where a generation has begun: its data sets have been brought there."""
    ended_s: float | None = None
    avoids: dict[str, float] = field(default_factory=dict)
    """Regions where a fault hit it, and until when it does not go back there."""

    def begin(self, start_s: float, placement: Placement, *, migrates: bool) -> None:
        """Notes that the next generation gets its GPUs."""
        self.generations += 1
        self.migrations += migrates
        self.chain, self.stages = placement.describe(), placement.stages
        self.brought |= {placement.segments[0].region}
        if self.first_start_s is None:
            self.first_start_s = start_s

    def end(self, run: Generation, bill: Bill, state: tuple[StateSpan, ...]) -> None:
        """Notes what the generation did and came to, and where it left its state."""
        self.done += run.steps
        self.bills.append(bill)
        self.state, self.ended_s = state, run.end_s

    def waiting(self, now_s: float, epoch_s: float) -> WaitingJob:
        """The job as it waits now; `epoch_s` is the start of the scenario."""
        spec = self.job.spec
        if not self.generations:
            return WaitingJob(spec, spec.training.steps)
        return WaitingJob(
            spec=spec,
            remaining_steps=max(1, spec.training.steps - self.done),
            generation=self.generations + 1,
            avoid_regions=self.avoided(now_s),
            state=self.state,
            spent_usd=self.spent_usd,
            stages=None if spec.elasticity is Elasticity.RESIZE else self.stages,
            brought=self.brought,
            waits_since_s=None if self.ended_s is None else epoch_s + self.ended_s,
        )

    def avoided(self, now_s: float) -> frozenset[str]:
        """The regions that it does not go back to yet."""
        return frozenset(region for region, until_s in self.avoids.items() if until_s > now_s)

    @property
    def spent_usd(self) -> float:
        """What the generations that have ended cost whoever pays for them."""
        return math.fsum(bill.paid_usd for bill in self.bills)

    def row(self, state: JobState, finish_s: float | None) -> JobRow:
        """The job's row, once nothing more happens to it."""
        return JobRow(
            job_id=self.job.spec.job_id,
            tenant=self.job.spec.project,
            submit_s=self.job.submit_s,
            first_start_s=self.first_start_s,
            finish_s=finish_s,
            jct_s=None if finish_s is None else finish_s - self.job.submit_s,
            steps=self.done,
            chain=self.chain,
            generations=self.generations,
            preemptions=self.preemptions,
            migrations=self.migrations,
            energy_kwh=math.fsum(bill.energy_kwh for bill in self.bills),
            electricity_usd=math.fsum(bill.electricity_usd for bill in self.bills),
            egress_usd=math.fsum(bill.egress_usd for bill in self.bills),
            rent_usd=math.fsum(bill.rent_usd for bill in self.bills),
            state=state.value,
            faults=self.faults,
        )
