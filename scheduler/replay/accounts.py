"""What a job has come to so far, over its generations: the making of its row in jobs.csv."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from scheduler.job import JobState
from scheduler.replay.jobs import ReplayJob
from scheduler.replay.meter import Bill, Generation
from scheduler.replay.records import JobRow


@dataclass(slots=True)
class Account:
    """`done` counts the steps that generations which have ended did and kept."""

    job: ReplayJob
    generations: int = 0
    preemptions: int = 0
    migrations: int = 0
    done: int = 0
    stages: int | None = None
    """Of its last generation."""
    first_start_s: float | None = None
    chain: str | None = None
    bills: list[Bill] = field(default_factory=list)

    def begin(self, start_s: float, chain: str, stages: int, *, migrates: bool) -> None:
        """Notes that the next generation gets its GPUs."""
        self.generations += 1
        self.migrations += migrates
        self.chain, self.stages = chain, stages
        if self.first_start_s is None:
            self.first_start_s = start_s

    def end(self, run: Generation, bill: Bill) -> None:
        """Notes what the generation did and came to."""
        self.done += run.steps
        self.bills.append(bill)

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
        )
