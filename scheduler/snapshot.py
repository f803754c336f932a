"""Everything one decision may look at. Immutable, versioned, and the same for the service and the replay."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from scheduler.cluster import Cluster
from scheduler.job import JobSpec
from scheduler.placement import Allocation
from scheduler.price import KnownPrices


@dataclass(frozen=True, slots=True)
class WaitingJob:
    """A job that wants to run. `remaining_steps` is declared steps minus those its checkpoint holds.

    `avoid_regions` are cooled down after a failure there; `require_regions`, where not empty, are the only
    ones that can reach its checkpoint. `generation` is that of the next allocation.
    """

    spec: JobSpec
    remaining_steps: int
    generation: int = 1
    avoid_regions: frozenset[str] = frozenset()
    require_regions: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class RunningJob:
    """A job that holds an allocation. `remaining_steps` is declared steps minus those reported."""

    spec: JobSpec
    allocation: Allocation
    remaining_steps: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The world at `now_s` (epoch seconds, UTC) as far as it is known then.

    `electricity` maps a region to its prices in USD per kWh as far as they are known at `now_s`; a region without
    any known price is missing from it or answers None. Free GPUs and residual bandwidth
    are not stored: `network.Residual.of(snapshot)` derives them from the cluster and the running jobs, so that
    they cannot disagree with them.
    """

    version: int
    now_s: float
    cluster: Cluster
    electricity: Mapping[str, KnownPrices]
    waiting: tuple[WaitingJob, ...] = field(default=())
    running: tuple[RunningJob, ...] = field(default=())
