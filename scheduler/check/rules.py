"""What a plan must keep, and how it is told that it does not."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from scheduler.job import JobSpec
from scheduler.placement import Placement
from scheduler.plan import Move, Start
from scheduler.snapshot import StateSpan

RELATIVE_TOLERANCE = 1e-9


class Rule(StrEnum):
    """What a plan must keep."""

    VERSION = "version"  # made against this snapshot
    ONCE_EACH = (
        "once-each"  # one decision for every waiting job, at most one for a running one, none for others
    )
    RUNNING = "running"  # only jobs that run, and are not stopping already, are preempted or moved
    ELASTICITY = (
        "elasticity"  # ... and only those that allow it, with as many stages as before where they ask that
    )
    REASONS = "reasons"  # whoever waits or is refused is told why
    GANG = "gang"  # whole stages of the size the job asked for, in numbers it allows
    REGION_ALLOWED = "region-allowed"
    ORDER = "order"  # of the schedule that was asked for, and whole
    BEGINNING = "beginning"  # the first stage stands at home, and where its data are or can be brought
    CHAIN = (
        "chain"  # each region once, each cut over links that exist, with a bandwidth and the right latency
    )
    GPUS = "gpus"
    QUOTA = "quota"  # no tenant holds more GPUs than it may
    SPENDING = "spending"  # or begins anything once its month's money is spent
    LINK = "link"
    UPLINK = "uplink"
    DOWNLINK = "downlink"
    MEMORY = "memory"
    TRANSFERS = "transfers"  # state travels from where it lies to where it is needed, no more and no less
    PREDICTION = "prediction"


@dataclass(frozen=True, slots=True)
class Violation:
    """One rule that one decision breaks. `job_id` is empty where the plan as a whole breaks it."""

    job_id: str
    rule: Rule
    detail: str


@dataclass(frozen=True, slots=True)
class Begun:
    """A placement that a plan gives: to a waiting job, or to a running one that it moves."""

    spec: JobSpec
    decision: Start | Move
    state: tuple[StateSpan, ...]
    """Where the job's checkpoint lies when it begins."""
    stages: int | None
    """The number it must keep, where it must."""
    avoid_regions: frozenset[str] = frozenset()
    require_regions: frozenset[str] = frozenset()
    brought: frozenset[str] = frozenset()
    """Where its data sets are because its first stage has stood there."""

    @property
    def job_id(self) -> str:
        return self.spec.job_id

    @property
    def placement(self) -> Placement:
        return self.decision.placement
