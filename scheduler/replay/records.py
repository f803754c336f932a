"""What a replay leaves behind: the rows of its files. The order of the fields is the order of the columns.

Times are seconds from the start of the scenario.
"""

from __future__ import annotations

from dataclasses import dataclass

from scheduler.reasons import Reason


@dataclass(frozen=True, slots=True)
class JobRow:
    """A job and what it came to. Times and chain of a job that never ran are None."""

    job_id: str
    tenant: str
    submit_s: float
    first_start_s: float | None
    finish_s: float | None
    jct_s: float | None
    steps: int
    chain: str | None
    generations: int
    preemptions: int
    migrations: int
    energy_kwh: float
    electricity_usd: float
    egress_usd: float
    rent_usd: float
    state: str


@dataclass(frozen=True, slots=True)
class AllocationRow:
    """What a job held in one region during one generation. `power_w` is the mean draw of one GPU before PUE."""

    job_id: str
    generation: int
    region: str
    stages: int
    gpus: int
    power_w: float
    iteration_s: float
    steps: int
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class LinkRow:
    """One direction of a cut during one generation."""

    job_id: str
    generation: int
    src: str
    dst: str
    reserved_bps: float
    bytes: float
    usd_per_gb: float
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why a job was told that it cannot run."""

    job_id: str
    reasons: tuple[Reason, ...]


@dataclass(frozen=True, slots=True)
class Decisions:
    """How long each call of the policy took, in seconds of real time."""

    durations_s: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """Everything that one policy did with one scenario."""

    policy: str
    seed: int
    jobs: tuple[JobRow, ...]
    allocations: tuple[AllocationRow, ...]
    links: tuple[LinkRow, ...]
    rejections: tuple[Rejection, ...]
    decisions: Decisions
    wall_s: float
