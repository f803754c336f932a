"""What the benchmark runs policies on: cells of its grids, and the worlds drawn for them.

A cell fixes everything but chance; a draw of it is a world: a scenario and its jobs, the same for every policy. All
draws come from seeds, and those of tuning and of the figures that are reported never share one.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, Protocol

from scheduler.bench.sources import Sources
from scheduler.cluster import Cluster
from scheduler.job import Elasticity, Schedule
from scheduler.replay.jobs import ReplayJob, with_estimate
from scheduler.replay.truth import Truth
from scheduler.spec.scenario import Scenario
from scheduler.spec.scenario_document import StragglersSection, TruthSection


class Split(StrEnum):
    """Which draws: those that policies may be tuned on, or those that are looked at once, at the end."""

    TUNING = "tuning"
    HELD_OUT = "held-out"

    @property
    def entropy(self) -> int:
        """What sets the seeds of one split apart from those of the other."""
        return list(Split).index(self)


_SLOWDOWN: Final = 1.5


@dataclass(frozen=True, slots=True)
class Conduct:
    """How the jobs of a cell train, what may be done to them, and how well they and the policies know the world.

    A job declares its actual steps × `bias` × log-normal(0, `sigma`). GPUs keep up `mfu` times what policies believe,
    links carry `carried` times what was granted, and of all generations the part `stragglers` takes half as long again.
    """

    schedule: Schedule = Schedule.SLACK_1F1B
    elasticity: Elasticity = Elasticity.RESIZE
    sigma: float = 0.5
    bias: float = 1.0
    mfu: float = 1.0
    carried: float = 1.0
    stragglers: float = 0.0

    @property
    def name(self) -> str:
        """What differs from the usual conduct, as a suffix of a cell's name; empty if nothing does."""
        told = (
            (self.schedule is not USUAL.schedule, self.schedule.value),
            (self.elasticity is not USUAL.elasticity, f"elasticity-{self.elasticity.value}"),
            (self.sigma != USUAL.sigma, f"sigma{self.sigma:g}"),
            (self.bias != USUAL.bias, f"bias{self.bias:g}"),
            (self.mfu != USUAL.mfu, f"mfu{self.mfu:g}"),
            (self.carried != USUAL.carried, f"carried{self.carried:g}"),
            (self.stragglers != USUAL.stragglers, f"stragglers{self.stragglers:g}"),
        )
        return "".join(f" {text}" for differs, text in told if differs)

    def truth(self, seed: int) -> TruthSection:
        """Where the world differs from what policies believe; the seed draws who straggles."""
        straggling = None
        if self.stragglers:
            straggling = StragglersSection(share=self.stragglers, slowdown=_SLOWDOWN, seed=seed)
        return TruthSection(mfu=self.mfu, bandwidth=self.carried, stragglers=straggling)

    def declared(self, job: ReplayJob, seed: int) -> ReplayJob:
        """The job with what it declares drawn around what it does."""
        job = with_estimate(job, self.sigma, seed)
        steps = max(1, round(job.spec.training.steps * self.bias))
        return replace(job, spec=replace(job.spec, training=replace(job.spec.training, steps=steps)))


USUAL: Final = Conduct()


def conducts() -> tuple[Conduct, ...]:
    """The usual one; strict 1F1B; and jobs that nobody may stop or resize."""
    return (
        USUAL,
        replace(USUAL, schedule=Schedule.ONE_F_ONE_B),
        replace(USUAL, elasticity=Elasticity.NONE),
    )


@dataclass(frozen=True, slots=True)
class World:
    """One draw of a cell. Jobs submitted before `measured_from_s` (after the start) fill the cluster and are not
    measured."""

    scenario: Scenario
    jobs: tuple[ReplayJob, ...]
    measured_from_s: float = 0.0

    @property
    def cluster(self) -> Cluster:
        """The cluster as it is, whatever policies believe."""
        return Truth(self.scenario.cluster, self.scenario.truth).cluster

    @property
    def measured(self) -> tuple[ReplayJob, ...]:
        """The jobs whose figures count."""
        return tuple(job for job in self.jobs if job.submit_s >= self.measured_from_s)


class Cell(Hashable, Protocol):
    """A point of a grid: a frozen dataclass, whose fields decide its worlds together with the number of the draw."""

    @property
    def grid(self) -> str:
        """The letter of its grid."""

    @property
    def name(self) -> str:
        """What tells it from the other cells of its grid."""

    @property
    def split(self) -> Split:
        """Which draws it takes."""

    @property
    def conduct(self) -> Conduct:
        """How its jobs behave."""

    @property
    def draws(self) -> int:
        """How many there are."""

    def world(self, draw: int, sources: Sources) -> World:
        """One of them. Raises SpecError where the real data that it is made of cannot be read."""
