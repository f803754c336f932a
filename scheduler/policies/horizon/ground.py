"""What horizon looks at in one decision: prices to come, and what is free, as arrays over regions."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from scheduler.cluster import Cluster, Ownership
from scheduler.cost import SECONDS_PER_HOUR
from scheduler.forecast import forecast
from scheduler.network import Residual, Topology
from scheduler.pipeline.kernel import compiled
from scheduler.placement import Placement, Transfer
from scheduler.policies.horizon import price_kernel
from scheduler.snapshot import Snapshot

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]

_HOURS: Final = (0.0, 0.25, 1.0, 3.0, 6.0, 12.0, 24.0, 48.0, 96.0, 168.0)
KNOTS_S: Final = np.array(_HOURS) * SECONDS_PER_HOUR
"""Times from now on between which a price is taken to be its mean."""
_KNOTS_S: Final = tuple(KNOTS_S.tolist())
UNKNOWN_PRICE: Final = 1.5
"""A region whose price nobody knows is taken to cost this much of the dearest known."""
_DEAR: Final = 1e-6
"""... which is taken to be at least this, USD per kWh: what is unknown is dearer than what is free."""


@dataclass(frozen=True, slots=True, eq=False)
class Prices:
    """Forecast prices from `now_s` on, by region in the order of the topology: step functions, a step at every knot.

    `steps[region, knot]` is the price from that knot on in USD per kWh × PUE, `sums[region, knot]` its integral up to
    the knot, price × seconds.
    """

    now_s: float
    steps: Floats
    sums: Floats
    lowest: float
    """The lowest price of any region."""
    index: Mapping[str, int]
    """Row of each region."""
    rents: Mapping[str, Floats]
    """By GPU type of which any is rented, and region: the rent of a GPU in USD per hour; NaN where the pool is owned
    or is not there."""

    @classmethod
    def of(cls, snapshot: Snapshot, topology: Topology) -> Prices:
        now_s, cluster = snapshot.now_s, snapshot.cluster
        index = {region: number for number, region in enumerate(topology.regions)}
        sums = np.full((len(index), KNOTS_S.size), np.nan)
        for region, number in index.items():
            seen = forecast(snapshot.electricity.get(region))
            if seen is not None:
                sums[number] = seen.integrals(now_s, KNOTS_S)
        means = np.column_stack((np.diff(sums) / np.diff(KNOTS_S), sums[:, -1] / KNOTS_S[-1]))
        steps = means * np.array([cluster.regions[region].pue for region in index])[:, None]
        unknown = np.isnan(steps[:, 0])
        dearest = steps[~unknown].max(axis=0, initial=_DEAR)
        steps[unknown] = UNKNOWN_PRICE * dearest
        rents: dict[str, Floats] = {}
        for (region, gpu_type), pool in cluster.pools.items():
            if pool.ownership is Ownership.RENTED:
                rent = rents.setdefault(gpu_type, np.full(len(index), np.nan))
                rent[index[region]] = pool.rent_usd_per_gpu_hour
        return cls(now_s, steps, _sums(steps), float(steps.min(initial=np.inf)), index, rents)

    def over(self, start_s: float, durations_s: Floats, least: Floats) -> Floats:
        """∫ price dt from a moment on over each duration, price × seconds: [region, duration].

        For each duration a price counts down to its `least`.
        """
        before_s = start_s - self.now_s
        loop: Callable[..., Floats] = compiled(price_kernel.run)
        return loop(KNOTS_S, self.steps, self.sums, self.lowest, before_s, durations_s, least)

    def usd(self, draw_kw: Iterable[tuple[str, float]], start_s: float, duration_s: float) -> float:
        """What the electricity of a draw in several regions costs from a moment on."""
        before_s = start_s - self.now_s
        left, right = (bisect_right(_KNOTS_S, each) - 1 for each in (before_s, before_s + duration_s))
        left_s, right_s = before_s - _KNOTS_S[left], before_s + duration_s - _KNOTS_S[right]
        total = 0.0
        for region, kilowatts in draw_kw:
            steps, sums = self.steps[self.index[region]], self.sums[self.index[region]]
            integral = sums[right] + steps[right] * right_s - sums[left] - steps[left] * left_s
            total += kilowatts * float(integral)
        return total / SECONDS_PER_HOUR

    def mean_over(self, duration_s: float) -> float:
        """The mean over all regions and so long from the first moment on."""
        knot = bisect_right(_KNOTS_S, duration_s) - 1
        integrals = self.sums[:, knot] + self.steps[:, knot] * (duration_s - _KNOTS_S[knot])
        total = float(np.add.reduce(integrals))
        return total / len(self.index) / duration_s

    def mean(self) -> float:
        """The mean over all regions and the coming days."""
        return max(0.0, float(self.steps[:, -1].mean())) if self.steps.size else 0.0

    def as_now(self) -> Prices:
        """The same where the prices of now go on."""
        steps = np.repeat(self.steps[:, :1], self.steps.shape[1], axis=1)
        return replace(self, steps=steps, sums=_sums(steps), lowest=float(steps.min(initial=np.inf)))

    def at_least(self, floor: float) -> Prices:
        """The same where no price is lower."""
        steps = np.maximum(self.steps, floor)
        return replace(self, steps=steps, sums=_sums(steps), lowest=max(self.lowest, floor))


def _sums(steps: Floats) -> Floats:
    """The integral up to each knot: along the second axis."""
    sums = np.zeros_like(steps)
    np.cumsum(steps[:, :-1] * np.diff(KNOTS_S), axis=1, out=sums[:, 1:])
    return sums


@dataclass(frozen=True, slots=True, eq=False)
class Network:
    """What does not change of links, region × region: one-way latency, the egress of both directions of a cut, and of
    one direction."""

    latency_s: Floats
    egress_usd_per_gb: Floats
    one_way_usd_per_gb: Floats
    mean_egress_usd_per_gb: float
    """Of one direction of a link."""

    @classmethod
    def of(cls, topology: Topology) -> Network:
        """That of a topology, made once."""
        known = _NETWORKS.get(topology)
        if known is None:
            known = _NETWORKS[topology] = cls._made(topology)
        return known

    @classmethod
    def _made(cls, topology: Topology) -> Network:
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
        linked = np.isfinite(latency)
        mean = float(egress[linked].mean()) / 2 if linked.any() else 0.0
        return cls(latency, egress, one_way, mean)


_NETWORKS: WeakKeyDictionary[Topology, Network] = WeakKeyDictionary()


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

    def state(self) -> tuple[bytes, ...]:
        """All that is free, as something to compare."""
        arrays = (*self.gpus.values(), self.link_bps, self.up_bps, self.down_bps)
        return tuple(each.tobytes() for each in arrays)

    def access_bps(self) -> Floats:
        """By region: the smaller of what may still leave and what may still enter it."""
        return np.minimum(self.up_bps, self.down_bps)

    def _move(self, src: int, dst: int, amount: int) -> None:
        self.link_bps[src, dst] += amount
        self.up_bps[src] += amount
        self.down_bps[dst] += amount


def schedulable_gpus(cluster: Cluster) -> int:
    """All GPUs of the cluster that take jobs."""
    return sum(pool.gpus for pool in cluster.pools.values())
