"""What horizon looks at in one decision: prices to come, and what is free, as arrays over regions."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from scheduler.cluster import Cluster
from scheduler.forecast import Forecast, forecast
from scheduler.network import Residual, Topology
from scheduler.snapshot import Snapshot

Floats = NDArray[np.float64]

WINDOWS_S = np.array(
    [900.0, 3600.0, 3 * 3600.0, 6 * 3600.0, 12 * 3600.0, 86400.0, 2 * 86400.0, 4 * 86400.0, 7 * 86400.0]
)
"""Lengths of the intervals from now on over which prices are averaged; a run is billed by the nearest."""
_BETWEEN = np.sqrt(WINDOWS_S[:-1] * WINDOWS_S[1:])
UNKNOWN_PRICE = 1.5
"""A region whose price nobody knows is taken to cost this much of the dearest known."""


@dataclass(frozen=True, slots=True, eq=False)
class Prices:
    """Forecast USD per kWh × PUE: `usd_per_kwh[region, window]`, regions in the order of the topology."""

    usd_per_kwh: Floats
    index: Mapping[str, int]
    """Row of each region."""

    @classmethod
    def of(cls, snapshot: Snapshot, topology: Topology) -> Prices:
        rows: list[list[float] | None] = []
        for region in topology.regions:
            seen = forecast(snapshot.electricity.get(region))
            pue = snapshot.cluster.regions[region].pue
            rows.append(
                None
                if seen is None
                else [
                    seen.mean(snapshot.now_s, snapshot.now_s + window) * pue for window in WINDOWS_S.tolist()
                ]
            )
        known = [row for row in rows if row is not None]
        dearest = [UNKNOWN_PRICE * max(*column, 0.0) for column in zip(*known, strict=True)]
        unknown = dearest or [0.0] * WINDOWS_S.size
        table = np.array([unknown if row is None else row for row in rows])
        return cls(table, {region: number for number, region in enumerate(topology.regions)})

    def over(self, durations_s: Floats) -> Floats:
        """The mean price from now over each duration: [region, duration]."""
        return self.usd_per_kwh[:, np.searchsorted(_BETWEEN, np.maximum(durations_s, 1.0))]

    def usd_per_hour(self, draw_kw: Iterable[tuple[str, float]], duration_s: float) -> float:
        """What a draw in several regions costs an hour, in the mean from now over a duration."""
        window = int(np.searchsorted(_BETWEEN, duration_s))
        return math.fsum(kw * float(self.usd_per_kwh[self.index[region], window]) for region, kw in draw_kw)

    def mean(self) -> float:
        """The mean over all regions and the coming days."""
        return max(0.0, float(self.usd_per_kwh[:, -1].mean())) if self.usd_per_kwh.size else 0.0


@lru_cache(maxsize=2048)
def _means(seen: Forecast) -> tuple[float, ...]:
    """The mean of a forecast over each window, from the quarter of an hour in which it was made."""
    return tuple(seen.mean(seen.start_s, seen.start_s + window) for window in WINDOWS_S.tolist())


@dataclass(frozen=True, slots=True, eq=False)
class Network:
    """What does not change of links, region × region: one-way latency, and the egress of both directions of a cut."""

    latency_s: Floats
    egress_usd_per_gb: Floats

    @classmethod
    def of(cls, topology: Topology) -> Network:
        index = {region: number for number, region in enumerate(topology.regions)}
        latency = np.full((len(index), len(index)), np.inf)
        egress = np.zeros_like(latency)
        links = topology.cluster.links
        for (a, b), latency_s in topology.pair_latency_s.items():
            latency[index[a], index[b]] = latency_s
            egress[index[a], index[b]] = links[a, b].egress_usd_per_gb + links[b, a].egress_usd_per_gb
        return cls(latency, egress)

    def mean_egress_usd_per_gb(self) -> float:
        """Of one direction of a link."""
        linked = np.isfinite(self.latency_s)
        return float(self.egress_usd_per_gb[linked].mean()) / 2 if linked.any() else 0.0


@dataclass(frozen=True, slots=True, eq=False)
class Free:
    """What a residual leaves, as arrays: `pair_bps[a, b]` between two regions, `access_bps` in and out of each."""

    pair_bps: Floats
    access_bps: Floats

    @classmethod
    def of(cls, residual: Residual) -> Free:
        regions = residual.topology.regions
        index = {region: number for number, region in enumerate(regions)}
        pair = np.zeros((len(regions), len(regions)))
        for a in regions:
            for b in residual.topology.neighbours[a]:
                pair[index[a], index[b]] = residual.own_pair_bps(a, b)
        return cls(pair, np.array([residual.access_bps(region) for region in regions], dtype=np.float64))


def schedulable_gpus(cluster: Cluster) -> int:
    """All GPUs of the cluster that take jobs."""
    return sum(pool.gpus for pool in cluster.pools.values())
