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
from scheduler.placement import Placement, Transfer
from scheduler.snapshot import Snapshot

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

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
    """What does not change of links, region × region: one-way latency, the egress of both directions of a cut, and of
    one direction."""

    latency_s: Floats
    egress_usd_per_gb: Floats
    one_way_usd_per_gb: Floats

    @classmethod
    def of(cls, topology: Topology) -> Network:
        index = {region: number for number, region in enumerate(topology.regions)}
        latency = np.full((len(index), len(index)), np.inf)
        egress = np.zeros_like(latency)
        links = topology.cluster.links
        one_way = np.zeros_like(latency)
        for src, dst in links:
            one_way[index[src], index[dst]] = links[src, dst].egress_usd_per_gb
        for (a, b), latency_s in topology.pair_latency_s.items():
            latency[index[a], index[b]] = latency_s
            egress[index[a], index[b]] = links[a, b].egress_usd_per_gb + links[b, a].egress_usd_per_gb
        return cls(latency, egress, one_way)

    def mean_egress_usd_per_gb(self) -> float:
        """Of one direction of a link."""
        linked = np.isfinite(self.latency_s)
        return float(self.egress_usd_per_gb[linked].mean()) / 2 if linked.any() else 0.0


@dataclass(slots=True, eq=False)
class Room:
    """What a residual leaves, as arrays over regions; whoever takes from the residual takes from here as well."""

    index: Mapping[str, int]
    gpus: dict[str, Integers]
    """Free GPUs of each type, by region."""
    link_bps: Floats
    """[src, dst]; 0 where there is no link."""
    up_bps: Floats
    down_bps: Floats

    @classmethod
    def of(cls, residual: Residual) -> Room:
        topology = residual.topology
        index = {region: number for number, region in enumerate(topology.regions)}
        link = np.zeros((len(index), len(index)))
        for src, dst in topology.link_bps:
            link[index[src], index[dst]] = residual.own_link_bps((src, dst))
        gpus = {name: np.zeros(len(index), dtype=np.int64) for name in topology.cluster.gpu_types}
        for region, gpu_type in topology.cluster.pools:
            gpus[gpu_type][index[region]] = residual.free_gpus((region, gpu_type))
        up = [residual.uplink_bps(region) for region in topology.regions]
        down = [residual.downlink_bps(region) for region in topology.regions]
        return cls(index, gpus, link, np.array(up, dtype=np.float64), np.array(down, dtype=np.float64))

    def clone(self) -> Room:
        """An independent copy."""
        gpus = {name: each.copy() for name, each in self.gpus.items()}
        return Room(self.index, gpus, self.link_bps.copy(), self.up_bps.copy(), self.down_bps.copy())

    def move(self, placement: Placement | None, transfers: Iterable[Transfer], sign: int) -> None:
        """Take (−1) or give back (+1) what a placement and transfers hold."""
        index = self.index
        if placement is not None:
            for segment in placement.segments:
                self.gpus[segment.gpu_type][index[segment.region]] += sign * segment.gpus
            for cut in placement.cuts:
                amount = sign * math.ceil(cut.bandwidth_bps)
                self._move(index[cut.src], index[cut.dst], amount)
                self._move(index[cut.dst], index[cut.src], amount)
        for each in transfers:
            self._move(index[each.src], index[each.dst], sign * math.ceil(each.bandwidth_bps))

    def holds(self, placement: Placement, transfers: Iterable[Transfer]) -> bool:
        """Whether all of it is free."""
        taken = self.clone()
        taken.move(placement, transfers, -1)
        left = (*taken.gpus.values(), taken.link_bps, taken.up_bps, taken.down_bps)
        had = (*self.gpus.values(), self.link_bps, self.up_bps, self.down_bps)
        return all(bool(((now >= 0) | (now == before)).all()) for now, before in zip(left, had, strict=True))

    def access_bps(self) -> Floats:
        """By region: the smaller of what may still leave and what may still enter it."""
        return np.minimum(self.up_bps, self.down_bps)

    def pair_bps(self) -> Floats:
        """What one more cut between two regions could get in both directions; 0 where a direction lacks a link."""
        access = self.access_bps()
        pair = np.minimum(self.link_bps, self.link_bps.T)
        return np.asarray(np.minimum(pair, np.minimum(access[:, None], access[None, :])))

    def _move(self, src: int, dst: int, amount: int) -> None:
        self.link_bps[src, dst] += amount
        self.up_bps[src] += amount
        self.down_bps[dst] += amount


def schedulable_gpus(cluster: Cluster) -> int:
    """All GPUs of the cluster that take jobs."""
    return sum(pool.gpus for pool in cluster.pools.values())
