"""What there is to run on: GPU types, regions, pools, nodes and the links between regions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from scheduler.errors import InvalidValueError


class Ownership(StrEnum):
    """Who pays what for a pool: an owner pays electricity, a renter pays rent by the GPU-hour."""

    OWNED = "owned"
    RENTED = "rented"


@dataclass(frozen=True, slots=True)
class GpuType:
    """A kind of GPU (or CPU slot).

    `sustained_flops` is what one GPU keeps up on transformer layers, FLOP/s (peak × MFU, or measured by the
    agent). `power_w` is drawn while busy, `idle_w` while held and waiting, before the region's PUE.
    `intra_region_bps` is the bandwidth of the data-parallel all-reduce between GPUs of one region, `memory_bps` that
    of the GPU's own memory (the optimizer step sweeps it); both in bits per second.
    """

    name: str
    sustained_flops: float
    memory_bytes: float
    power_w: float
    idle_w: float
    intra_region_bps: float = 400e9
    memory_bps: float = 8e12

    def __post_init__(self) -> None:
        for name in ("sustained_flops", "memory_bytes", "intra_region_bps", "memory_bps"):
            _require_positive(f"gpu type {self.name}: {name}", getattr(self, name))
        for name in ("power_w", "idle_w"):
            _require_finite_not_negative(f"gpu type {self.name}: {name}", getattr(self, name))
        if self.idle_w > self.power_w:
            raise InvalidValueError(
                f"gpu type {self.name}: idle_w", self.idle_w, f"at most power_w = {self.power_w}"
            )


@dataclass(frozen=True, slots=True)
class Region:
    """A place. `uplink_bps` and `downlink_bps` bound the sum of all its links (infinite if nothing does)."""

    name: str
    pue: float = 1.0
    uplink_bps: float = math.inf
    downlink_bps: float = math.inf

    def __post_init__(self) -> None:
        if not (math.isfinite(self.pue) and self.pue >= 1.0):
            raise InvalidValueError(f"region {self.name}: pue", self.pue, "a number of at least 1")
        for name in ("uplink_bps", "downlink_bps"):
            value = getattr(self, name)
            if not value > 0:
                raise InvalidValueError(f"region {self.name}: {name}", value, "a bandwidth above 0")


@dataclass(frozen=True, slots=True)
class Pool:
    """The GPUs of one type in one region that may be scheduled on (cordoned and lost nodes are not in it)."""

    region: str
    gpu_type: str
    gpus: int
    ownership: Ownership = Ownership.OWNED
    rent_usd_per_gpu_hour: float = 0.0

    def __post_init__(self) -> None:
        if self.gpus < 0:
            raise InvalidValueError(f"pool {self.region}/{self.gpu_type}: gpus", self.gpus, "0 or more")
        _require_finite_not_negative(
            f"pool {self.region}/{self.gpu_type}: rent_usd_per_gpu_hour", self.rent_usd_per_gpu_hour
        )

    @property
    def key(self) -> PoolKey:
        return (self.region, self.gpu_type)


PoolKey = tuple[str, str]
"""(region, gpu type)."""
LinkKey = tuple[str, str]
"""(source region, destination region)."""


@dataclass(frozen=True, slots=True)
class Node:
    """A host with GPUs of one type. A replay has none: there only the counts of the pools bind."""

    node_id: str
    region: str
    gpu_type: str
    free_gpus: tuple[int, ...]
    """Indices of the GPUs that are free and schedulable, ascending."""


@dataclass(frozen=True, slots=True)
class Link:
    """A directed link between two regions. `latency_s` is one way (half the round trip)."""

    src: str
    dst: str
    capacity_bps: float
    latency_s: float
    egress_usd_per_gb: float = 0.0

    def __post_init__(self) -> None:
        name = f"link {self.src}->{self.dst}"
        if self.src == self.dst:
            raise InvalidValueError(f"{name}: dst", self.dst, "another region than src")
        if not (math.isfinite(self.capacity_bps) and self.capacity_bps >= 0):
            raise InvalidValueError(f"{name}: capacity_bps", self.capacity_bps, "a number of 0 or more")
        _require_finite_not_negative(f"{name}: latency_s", self.latency_s)
        _require_finite_not_negative(f"{name}: egress_usd_per_gb", self.egress_usd_per_gb)

    @property
    def key(self) -> LinkKey:
        return (self.src, self.dst)


@dataclass(frozen=True, slots=True)
class RestartCosts:
    """What stopping and restarting a job takes on this cluster, whatever the job (`restart.py` has the formulas).

    `fixed_s` is spent at every restart: processes start, groups form, the first iteration warms up. A GPU writes and
    reads checkpoints at `storage_bps_per_gpu` (1 GB/s for a node of eight). A job that is not asked before it dies
    loses what it did since its last checkpoint; it writes one every `checkpoint_every_s` beside its training.
    """

    fixed_s: float = 60.0
    storage_bps_per_gpu: float = 1e9
    checkpoint_every_s: float = 1800.0

    def __post_init__(self) -> None:
        _require_finite_not_negative("restart: fixed_s", self.fixed_s)
        _require_positive("restart: storage_bps_per_gpu", self.storage_bps_per_gpu)
        _require_positive("restart: checkpoint_every_s", self.checkpoint_every_s)


@dataclass(frozen=True, slots=True)
class Cluster:
    """Everything there is, free or not. Names are keys, and every reference in it resolves."""

    gpu_types: Mapping[str, GpuType]
    regions: Mapping[str, Region]
    pools: Mapping[PoolKey, Pool]
    links: Mapping[LinkKey, Link]
    nodes: tuple[Node, ...] = field(default=())
    restart: RestartCosts = field(default_factory=RestartCosts)

    def __post_init__(self) -> None:
        for pool in self.pools.values():
            if pool.region not in self.regions:
                raise InvalidValueError("pool: region", pool.region, "a known region")
            if pool.gpu_type not in self.gpu_types:
                raise InvalidValueError("pool: gpu_type", pool.gpu_type, "a known GPU type")
        for link in self.links.values():
            for end in link.key:
                if end not in self.regions:
                    raise InvalidValueError(f"link {link.src}->{link.dst}", end, "a known region")
        for node in self.nodes:
            if (node.region, node.gpu_type) not in self.pools:
                raise InvalidValueError(
                    f"node {node.node_id}", (node.region, node.gpu_type), "a pool that exists"
                )

    def pools_of(self, region: str) -> tuple[Pool, ...]:
        """The pools of a region, by GPU type name."""
        return tuple(self.pools[key] for key in sorted(self.pools) if key[0] == region)


def _require_positive(name: str, value: float) -> None:
    if not (math.isfinite(value) and value > 0):
        raise InvalidValueError(name, value, "a finite number above 0")


def _require_finite_not_negative(name: str, value: float) -> None:
    if not (math.isfinite(value) and value >= 0):
        raise InvalidValueError(name, value, "a finite number of 0 or more")
