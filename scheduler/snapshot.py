"""Everything one decision may look at. Immutable, versioned, and the same for the service and the replay."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from scheduler.cluster import Cluster
from scheduler.job import JobSpec
from scheduler.placement import Allocation, Placement, Transfer
from scheduler.price import KnownPrices


@dataclass(frozen=True, slots=True)
class StateSpan:
    """So many consecutive layers of a job whose checkpoint lies in one region."""

    region: str
    layers: int


@dataclass(frozen=True, slots=True)
class WaitingJob:
    """A job that wants to run. `remaining_steps` is declared steps minus those its checkpoint holds.

    `avoid_regions` are cooled down after a failure there; `require_regions`, where not empty, are the only
    ones that can reach its checkpoint. `generation` is that of the next allocation. `state` tells where its checkpoint
    lies, in layer order; empty where it has none, or where every region reads it alike. `stages` is the number it has
    to start with again, where it may not change. `waits_since_s` is when it last began to wait (epoch seconds; None:
    when it was submitted).
    """

    spec: JobSpec
    remaining_steps: int
    generation: int = 1
    avoid_regions: frozenset[str] = frozenset()
    require_regions: frozenset[str] = frozenset()
    state: tuple[StateSpan, ...] = ()
    spent_usd: float = 0.0
    """What earlier generations cost whoever pays for it."""
    stages: int | None = None
    waits_since_s: float | None = None
    brought: frozenset[str] = frozenset()
    """Regions where its first stage has stood: its data sets have been brought there."""


@dataclass(frozen=True, slots=True)
class RunningJob:
    """A job that holds an allocation. `remaining_steps` is declared steps minus those reported.

    `ready_s` is when it takes its first step of this generation (epoch seconds; None: at its start), `transfers` are
    what still travels until then. A `stopping` job writes its checkpoint: it holds what it has until it is gone, and
    nothing more is decided about it here: it goes on by a promise, or waits again. `state` is the checkpoint from
    which it started; it holds until `ready_s` (`restart.state_after_stop`).
    """

    spec: JobSpec
    allocation: Allocation
    remaining_steps: int
    ready_s: float | None = None
    transfers: tuple[Transfer, ...] = ()
    stopping: bool = False
    spent_usd: float = 0.0
    """What earlier generations cost whoever pays for it."""
    state: tuple[StateSpan, ...] = ()
    brought: frozenset[str] = frozenset()
    """Regions where its first stage has stood: its data sets have been brought there."""
    avoid_regions: frozenset[str] = frozenset()
    """Regions that cool down after a failure of this job there: it does not move into them."""
    generation_usd: float = 0.0
    """What the present generation has cost until now; told of jobs that have a budget."""


@dataclass(frozen=True, slots=True)
class Promise:
    """A start or move that has been decided, and begins once jobs that are stopping have left what it needs.

    What it will hold is spoken for: nobody else may be given it.
    """

    spec: JobSpec
    placement: Placement
    remaining_steps: int
    generation: int
    transfers: tuple[Transfer, ...] = ()


@dataclass(frozen=True, slots=True)
class Quota:
    """What a tenant may hold and spend at most; None: as much as there is.

    `spent_usd` is what the ledger holds for the calendar month (UTC) that ends at `month_ends_s` (epoch seconds).
    """

    gpus: int | None = None
    """Held at once."""
    usd_per_month: float | None = None
    spent_usd: float = 0.0
    month_ends_s: float = math.inf


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The world at `now_s` (epoch seconds, UTC) as far as it is known then.

    `electricity` maps a region to its prices in USD per kWh as far as they are known at `now_s`; a region without
    any known price is missing from it or answers None. Free GPUs and residual bandwidth
    are not stored: `network.Residual` derives them from the cluster, the running jobs and the promises, so that
    they cannot disagree with them.
    """

    version: int
    now_s: float
    cluster: Cluster
    electricity: Mapping[str, KnownPrices]
    waiting: tuple[WaitingJob, ...] = field(default=())
    running: tuple[RunningJob, ...] = field(default=())
    promised: tuple[Promise, ...] = field(default=())
    recent: tuple[JobSpec, ...] = field(default=())
    """Jobs that ended not long ago, the last first: what kind of jobs there are, beyond those of now."""
    shares: Mapping[str, float] = field(default_factory=dict)
    """Weight of each tenant (project) that has one; empty where all jobs are of one queue."""
    quotas: Mapping[str, Quota] = field(default_factory=dict)
    """Of each tenant that has any: no plan gives it more, whatever the policy."""
