"""What a replay leaves behind: the rows of its files. The order of the fields is the order of the columns.

Times are seconds from the start of the scenario.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from scheduler.reasons import Reason


@dataclass(frozen=True, slots=True)
class JobRow:
    """A job and what it came to. Times and chain of a job that never ran are None, `finish_s` and `jct_s` also of one
    that was stopped and never started again.

    `preemptions` counts how often it was stopped to wait again, `migrations` the generations to which state travelled,
    `faults` the node faults that ended a generation.
    """

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
    faults: int


@dataclass(frozen=True, slots=True)
class AllocationRow:
    """What a job held in one region during one generation.

    `power_w` is the mean draw of one GPU before PUE, over the whole row: idle while the job restarts or writes its
    state, and in the part of a step that a stop cuts off. `restart_s` passes before its first step, `stop_s` while it
    writes its state at the end. `steps` are those that it kept, `steps_lost` those that it did and a fault undid.
    """

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
    restart_s: float
    stop_s: float
    steps_lost: int


class LinkUse(StrEnum):
    """What a row of links.csv is about."""

    CUT = "cut"  # one direction of a cut, during one generation
    STATE = (
        "state"  # a checkpoint that travels to where the job restarts, from its start until it has arrived
    )
    DATA = "data"  # a data set that is brought to where the job begins: nothing is reserved for it


@dataclass(frozen=True, slots=True)
class LinkRow:
    """What a job reserved on one link, and sent over it."""

    job_id: str
    generation: int
    src: str
    dst: str
    reserved_bps: float
    bytes: float
    usd_per_gb: float
    start_s: float
    end_s: float
    use: LinkUse


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
    node_faults: int
    """Faults that began before the last job ended, whether or not they hit one."""
    decisions: Decisions
    wall_s: float
