"""What is free: GPUs of the pools, bandwidth of links, uplinks and downlinks, with reservations.

A cut sends activations forward and gradients backward at the same time, so it holds its bandwidth on the link
src→dst *and* on dst→src, and on the uplink and the downlink of both ends.

Bandwidth is counted in whole bits per second: a grant is rounded up, a capacity down. Sums of whole numbers are
exact and do not depend on their order, so `give_back` undoes `take` to the last digit, and the residual does not
depend on the order in which the snapshot lists its jobs.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Final

from scheduler.cluster import Cluster, LinkKey, PoolKey
from scheduler.placement import Cut, Placement, Transfer
from scheduler.snapshot import RunningJob, Snapshot

_REMEMBERED_CLUSTERS: Final = 8

Bandwidth = float
"""Whole bits per second (an int), or infinity where nothing bounds it."""


class Topology:
    """What of a cluster does not change with its load: names in order, capacities in whole units, latencies."""

    __slots__ = (
        "__weakref__",
        "cluster",
        "downlink_bps",
        "link_bps",
        "neighbours",
        "pair_latency_s",
        "pools_by_region",
        "regions",
        "total_link_bps",
        "uplink_bps",
    )

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.regions: tuple[str, ...] = tuple(sorted(cluster.regions))
        self.pools_by_region: Mapping[str, tuple[PoolKey, ...]] = {
            region: tuple(pool.key for pool in cluster.pools_of(region)) for region in self.regions
        }
        self.link_bps: Mapping[LinkKey, Bandwidth] = {
            key: _whole(cluster.links[key].capacity_bps) for key in sorted(cluster.links)
        }
        self.uplink_bps: Mapping[str, Bandwidth] = {
            name: _whole(cluster.regions[name].uplink_bps) for name in self.regions
        }
        self.downlink_bps: Mapping[str, Bandwidth] = {
            name: _whole(cluster.regions[name].downlink_bps) for name in self.regions
        }
        self.total_link_bps = sum(self.link_bps.values())
        both_ways = [key for key in self.link_bps if (key[1], key[0]) in self.link_bps]
        self.pair_latency_s: Mapping[LinkKey, float] = {
            (a, b): (cluster.links[a, b].latency_s + cluster.links[b, a].latency_s) / 2 for a, b in both_ways
        }
        self.neighbours: Mapping[str, tuple[str, ...]] = {
            region: tuple(b for a, b in both_ways if a == region) for region in self.regions
        }

    @classmethod
    def of(cls, cluster: Cluster) -> Topology:
        """The topology of a cluster; the clusters used last are remembered (a cluster never changes)."""
        known = _TOPOLOGIES.get(id(cluster))
        if known is not None:
            _TOPOLOGIES.move_to_end(id(cluster))
            return known
        topology = cls(cluster)
        _TOPOLOGIES[id(cluster)] = topology  # holds the cluster, so that its id stays its own
        if len(_TOPOLOGIES) > _REMEMBERED_CLUSTERS:
            _TOPOLOGIES.popitem(last=False)
        return topology


_TOPOLOGIES: OrderedDict[int, Topology] = OrderedDict()


class Residual:
    """A working copy of what is free. Mutable: a policy takes from it as it goes through the queue."""

    __slots__ = ("_down", "_free", "_links", "_neighbours", "_up", "topology")

    def __init__(
        self,
        topology: Topology,
        free: dict[PoolKey, int],
        links: dict[LinkKey, Bandwidth],
        up: dict[str, Bandwidth],
        down: dict[str, Bandwidth],
    ) -> None:
        self.topology = topology
        self._free = free
        self._links = links
        self._up = up
        self._down = down
        self._neighbours: dict[str, tuple[tuple[str, Bandwidth], ...]] = {}

    @classmethod
    def empty(cls, cluster: Cluster) -> Residual:
        """The cluster with nothing running on it: every GPU of every pool, every link whole."""
        topology = Topology.of(cluster)
        free = {key: pool.gpus for key, pool in cluster.pools.items()}
        return cls(
            topology,
            free,
            dict(topology.link_bps),
            dict(topology.uplink_bps),
            dict(topology.downlink_bps),
        )

    @classmethod
    def of(cls, snapshot: Snapshot) -> Residual:
        """What may be given away now: neither held by a running job nor promised to one that is to begin.

        Where the cluster has nodes, their free GPUs count (a cordoned node's jobs run on GPUs that are not in the
        pool any more); where it has none, the pool's GPUs less those that allocations hold.
        """
        residual = cls._without(snapshot, snapshot.running)
        for promise in snapshot.promised:
            residual.take(promise.placement, promise.transfers)
        return residual

    @classmethod
    def after_stops(cls, snapshot: Snapshot) -> Residual:
        """What may be given away once every job that is stopping has left: the rest of it is held or promised.

        A start that needs more than is free now begins when those jobs are gone.
        """
        residual = cls.of(snapshot)
        for job in snapshot.running:
            if job.stopping:
                residual.give_back(job.allocation.placement, job.transfers)
        return residual

    @classmethod
    def _without(cls, snapshot: Snapshot, running: Iterable[RunningJob]) -> Residual:
        residual = cls.empty(snapshot.cluster)
        if snapshot.cluster.nodes:
            residual._free = dict.fromkeys(snapshot.cluster.pools, 0)
            for node in snapshot.cluster.nodes:
                residual._free[node.region, node.gpu_type] += len(node.free_gpus)
        else:
            for job in running:
                residual._move_gpus(job.allocation.placement, -1)
        for job in running:
            residual._move_bandwidth(job.allocation.placement.cuts, -1)
            residual._move_transfers(job.transfers, -1)
        return residual

    def clone(self) -> Residual:
        """An independent copy."""
        return Residual(self.topology, dict(self._free), dict(self._links), dict(self._up), dict(self._down))

    def least(self, other: Residual) -> Residual:
        """What is free here and there."""
        return Residual(
            self.topology,
            {key: min(free, other._free.get(key, 0)) for key, free in self._free.items()},
            {key: min(free, other._links[key]) for key, free in self._links.items()},
            {key: min(free, other._up[key]) for key, free in self._up.items()},
            {key: min(free, other._down[key]) for key, free in self._down.items()},
        )

    def free_gpus(self, pool: PoolKey) -> int:
        """GPUs of a pool that nobody holds; 0 for a pool that is not there."""
        return max(0, self._free.get(pool, 0))

    def uplink_bps(self, region: str) -> Bandwidth:
        """What may still leave a region, over all its links."""
        return max(0, self._up.get(region, 0))

    def downlink_bps(self, region: str) -> Bandwidth:
        """What may still enter a region, over all its links."""
        return max(0, self._down.get(region, 0))

    def own_link_bps(self, link: LinkKey) -> Bandwidth:
        """What the link itself has left, whatever its ends allow; 0 for a link that is not there."""
        return max(0, self._links.get(link, 0))

    def link_bps(self, link: LinkKey) -> Bandwidth:
        """What one more cut could get in this direction: the link, the uplink of src and the downlink of dst."""
        src, dst = link
        return min(self.own_link_bps(link), self.uplink_bps(src), self.downlink_bps(dst))

    def pair_bps(self, a: str, b: str) -> Bandwidth:
        """What one more cut between two regions could get in both directions; 0 where a direction lacks a link."""
        return min(self.link_bps((a, b)), self.link_bps((b, a)))

    def own_pair_bps(self, a: str, b: str) -> Bandwidth:
        """As `pair_bps`, by the two links alone: what up- and downlinks allow is `access_bps`."""
        return min(self.own_link_bps((a, b)), self.own_link_bps((b, a)))

    def neighbours(self, region: str) -> tuple[tuple[str, Bandwidth], ...]:
        """Every region linked with this one in both directions, with `own_pair_bps` to it; the widest first."""
        known = self._neighbours.get(region)
        if known is None:
            names = self.topology.neighbours[region]
            pairs = [(name, self.own_pair_bps(region, name)) for name in names]
            known = tuple(sorted(pairs, key=lambda pair: (-pair[1], pair[0])))
            self._neighbours[region] = known
        return known

    def access_bps(self, region: str) -> Bandwidth:
        """What all new cuts of a region may take together: the smaller of its uplink and downlink."""
        return min(self.uplink_bps(region), self.downlink_bps(region))

    def congestion(self) -> float:
        """α = 1 − free / total bandwidth over all directed links; 0 where there are none."""
        total = self.topology.total_link_bps
        if total <= 0:
            return 0.0
        return 1.0 - sum(max(0, free) for free in self._links.values()) / total

    def take(self, placement: Placement, transfers: Iterable[Transfer] = ()) -> None:
        """Reserve GPUs and bandwidth. The caller has looked that they are there."""
        self._move_gpus(placement, -1)
        self._move_bandwidth(placement.cuts, -1)
        self._move_transfers(transfers, -1)

    def give_back(self, placement: Placement, transfers: Iterable[Transfer] = ()) -> None:
        """Undo `take` exactly."""
        self._move_gpus(placement, +1)
        self._move_bandwidth(placement.cuts, +1)
        self._move_transfers(transfers, +1)

    def give_back_transfers(self, transfers: Iterable[Transfer]) -> None:
        """What travelled has arrived."""
        self._move_transfers(transfers, +1)

    def widened(self, cuts: Iterable[Cut]) -> Residual:
        """A copy with so much more bandwidth where these cuts run: what would be if somebody gave it back."""
        copy = self.clone()
        copy._move_bandwidth(cuts, +1)
        return copy

    def _move_gpus(self, placement: Placement, sign: int) -> None:
        for segment in placement.segments:
            key = (segment.region, segment.gpu_type)
            if key in self._free:
                self._free[key] += sign * segment.gpus

    def _move_bandwidth(self, cuts: Iterable[Cut], sign: int) -> None:
        for cut in cuts:
            amount = sign * math.ceil(cut.bandwidth_bps)
            for src, dst in ((cut.src, cut.dst), (cut.dst, cut.src)):
                self._move(src, dst, amount)

    def _move_transfers(self, transfers: Iterable[Transfer], sign: int) -> None:
        for transfer in transfers:
            self._move(transfer.src, transfer.dst, sign * math.ceil(transfer.bandwidth_bps))

    def _move(self, src: str, dst: str, amount: int) -> None:
        if (src, dst) in self._links:
            self._links[src, dst] += amount
        if src in self._up:
            self._up[src] += amount
        if dst in self._down:
            self._down[dst] += amount
        self._neighbours.clear()


def _whole(capacity_bps: float) -> Bandwidth:
    return capacity_bps if math.isinf(capacity_bps) else math.floor(capacity_bps)
