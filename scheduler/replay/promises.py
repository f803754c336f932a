"""What has been decided and has not begun: starts and moves that wait for what stopping jobs still hold."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass

from scheduler.cluster import Cluster
from scheduler.placement import Placement, Transfer
from scheduler.snapshot import Promise, StateSpan

_Resource = tuple[str, ...]
_ROUNDING = 1e-9  # of sums of floats, relative, as in the check of plans


@dataclass(frozen=True, slots=True)
class Pending:
    """A promise, and the checkpoint from which the job begins."""

    promise: Promise
    state: tuple[StateSpan, ...]

    @property
    def job_id(self) -> str:
        return self.promise.spec.job_id

    @property
    def regions(self) -> set[str]:
        """Where it will hold anything, or anything travels from or to."""
        regions = {each.region for each in self.promise.placement.segments}
        for transfer in self.promise.transfers:
            regions |= {transfer.src, transfer.dst}
        return regions


def that_begin(
    pending: Sequence[Pending],
    held: Iterable[tuple[Placement, Sequence[Transfer]]],
    leaving: Set[str],
    cluster: Cluster,
) -> list[Pending]:
    """Those whose needs are really free, in their order. `leaving` are the jobs that still hold what they leave.

    An earlier promise has the first right to everything that it needs: a later one may begin before it only with
    what that leaves. So none waits longer than for the jobs that were stopping when it was made. With nobody
    leaving all begin: that all of it fits then is what makes a plan legal.
    """
    if not leaving:
        return list(pending)
    level: defaultdict[_Resource, float] = defaultdict(float)
    for placement, transfers in held:
        for resource, amount in _uses(placement, transfers):
            level[resource] += amount
    beginning = []
    for each in pending:
        needs = list(_uses(each.promise.placement, each.promise.transfers))
        for resource, amount in needs:
            level[resource] += amount
        free = all(level[resource] <= _capacity(cluster, resource) * (1 + _ROUNDING) for resource, _ in needs)
        if free and each.job_id not in leaving:
            beginning.append(each)
    return beginning


def _uses(placement: Placement, transfers: Iterable[Transfer]) -> Iterator[tuple[_Resource, float]]:
    for segment in placement.segments:
        yield ("pool", segment.region, segment.gpu_type), segment.gpus
    one_way = [(cut.src, cut.dst, cut.bandwidth_bps) for cut in placement.cuts]
    one_way += [(cut.dst, cut.src, cut.bandwidth_bps) for cut in placement.cuts]
    one_way += [(each.src, each.dst, each.bandwidth_bps) for each in transfers]
    for src, dst, bandwidth_bps in one_way:
        yield ("link", src, dst), bandwidth_bps
        yield ("uplink", src), bandwidth_bps
        yield ("downlink", dst), bandwidth_bps


def _capacity(cluster: Cluster, resource: _Resource) -> float:
    match resource:
        case ("pool", region, gpu_type):
            return cluster.pools[region, gpu_type].gpus
        case ("link", src, dst):
            return cluster.links[src, dst].capacity_bps
        case ("uplink", region):
            return cluster.regions[region].uplink_bps
        case ("downlink", region):
            return cluster.regions[region].downlink_bps
    return math.inf
