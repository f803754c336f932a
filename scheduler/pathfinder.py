"""The bandwidth-aware pathfinder of BACE-Pipe: which regions a pipeline crosses, and in which order.

A chain grows like Prim's tree, best residual link first, at either of its ends. A link enters only if on its
residual bandwidth, in both directions and with the uplinks and downlinks of both ends, A/b ≤ the pace of the
stages that the chain then has. A region inside a chain carries two cuts, which share its uplink and downlink.

What is not published is ours: the growth is tried from every region where the chain may begin (the home of the job,
where its data can be brought, mostly anywhere), and goes on at the beginning with such regions only; the chain with the
most stages wins, then the one with the fewest regions, then the cheapest; regions that add no stage are left out again
at the end. Where growth finds fewer stages than the job needs, OR-Tools searches (`chain_search.py`): a job
for which no path is returned has none on this residual network.
"""

from __future__ import annotations

import math
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from scheduler.allocator import Offer
from scheduler.chain_search import Site, search_chain
from scheduler.network import Bandwidth, Residual
from scheduler.options import StageCounts


@dataclass(frozen=True, slots=True)
class Path:
    """A chain of regions in pipeline order, and how many stages it is to hold."""

    regions: tuple[str, ...]
    stages: int


@dataclass(frozen=True, slots=True)
class _Ground:
    """What the growth looks at: free slots and prices of the regions that have any, and the residual network."""

    counts: StageCounts
    cap: int
    max_regions: int
    residual: Residual
    slots: Mapping[str, int]
    rates: Mapping[str, tuple[tuple[bool, float, int], ...]]
    """By region (unknown, rate, slots) of its offers, cheapest first."""
    access: Mapping[str, Bandwidth]
    begins: tuple[str, ...]
    """Where the chain may begin."""

    @classmethod
    def of(
        cls,
        counts: StageCounts,
        cap: int,
        max_regions: int,
        offers: Sequence[Offer],
        residual: Residual,
        begins: Container[str],
    ) -> _Ground:
        slots: dict[str, int] = {}
        rates: dict[str, list[tuple[bool, float, int]]] = {}
        for offer in sorted(offers, key=lambda each: each.pool):
            if offer.slots:
                slots[offer.region] = slots.get(offer.region, 0) + offer.slots
                rates.setdefault(offer.region, []).append((*offer.rate.key, offer.slots))
        return cls(
            counts,
            cap,
            max_regions,
            residual,
            slots,
            {region: tuple(sorted(each)) for region, each in rates.items()},
            {region: residual.access_bps(region) for region in slots},
            tuple(region for region in slots if region in begins),
        )

    def best(self, slots: int, width_bps: Bandwidth = math.inf) -> int:
        """Position of the best stage count within so many slots and that bandwidth; −1 below the least."""
        return min(self.cap, self.counts.index(slots, width_bps))

    def preference(self, path: Path) -> tuple[int, int, int, float, tuple[str, ...]]:
        """Most stages, fewest regions, cheapest, then by name."""
        return (-path.stages, len(path.regions), *self._cost(path), path.regions)

    def _cost(self, path: Path) -> tuple[int, float]:
        """(stages at an unknown price, USD per hour of the others), one stage each and the rest where cheapest."""
        stands = [(*self.rates[region][0][:2], 1) for region in path.regions]
        left = path.stages - len(path.regions)
        more = [
            (unknown, rate, slots - (0 if position else 1))
            for region in path.regions
            for position, (unknown, rate, slots) in enumerate(self.rates[region])
        ]
        for unknown, rate, slots in sorted(more):
            here = min(left, slots)
            left -= here
            stands.append((unknown, rate, here))
        return (
            sum(stages for unknown, _, stages in stands if unknown),
            math.fsum(rate * stages for unknown, rate, stages in stands if not unknown),
        )


def find_path(
    counts: StageCounts,
    cap: int,
    max_regions: int,
    offers: Sequence[Offer],
    residual: Residual,
    begins: Container[str],
    seed: int,
) -> Path | None:
    """The chain for min(K*, what can be joined) stages; None if no chain holds the least number of them.

    `cap` is the position of K* in `counts`, `offers` are the pools that the job may use with their free slots, `begins`
    the regions in which the chain may begin. The answer depends on these and the residual bandwidth, not on the order
    of `offers`.
    """
    ground = _Ground.of(counts, cap, max_regions, offers, residual, begins)
    widest = sorted(ground.slots.values(), reverse=True)[:max_regions]
    if not ground.begins or ground.best(sum(widest)) < 0:
        return None
    alone = [(start, ground.best(ground.slots[start])) for start in ground.begins]
    if max_regions == 1 or max(best for _, best in alone) == cap:
        paths = [Path((start,), counts.counts[best]) for start, best in alone if best >= 0]
    else:
        paths = [path for start in ground.begins if (path := _grow(ground, start)) is not None]
        if not paths:
            return _searched(ground, seed)
    return min(paths, key=ground.preference, default=None)


def _grow(ground: _Ground, start: str) -> Path | None:
    """The published growth from one region, cut back to the shortest beginning with as many stages."""
    chain, room, width = [start], ground.slots[start], math.inf
    best = ground.best(room)
    path = Path((start,), ground.counts.counts[best]) if best >= 0 else None
    while best < ground.cap and len(chain) < ground.max_regions:
        step = _next_link(ground, chain, room, width, best)
        if step is None:
            break
        region, at_end, width = step
        chain.insert(len(chain) if at_end else 0, region)
        room += ground.slots[region]
        now = ground.best(room, width)
        if now > best:
            best, path = now, Path(tuple(chain), ground.counts.counts[now])
    return path


def _next_link(
    ground: _Ground, chain: list[str], room: int, width: Bandwidth, best: int
) -> tuple[str, bool, Bandwidth] | None:
    """The best link that may enter: (region, at the end or the beginning, width of the chain with it).

    Links are compared by what a cut could get, then by the free slots behind them, price and name.
    """
    found: tuple[float, int, tuple[bool, float, int], str, bool] | None = None
    least = ground.counts.need_bps[0]
    slots, access = ground.slots, ground.access
    for at_end, end in ((True, chain[-1]), (False, chain[0]))[: len(chain)]:
        spare = access[end] if len(chain) == 1 else access[end] / 2
        if spare < least:
            continue
        for region, own in ground.residual.neighbours(end):
            if own < least or (found is not None and own < -found[0]):
                break  # the widest come first: no later one can be better
            if region not in slots or region in chain or not (at_end or region in ground.begins):
                continue
            link = min(own, spare, access[region])
            if link < least or (found is not None and link < -found[0]):
                continue
            key = (-link, -slots[region], ground.rates[region][0], region, at_end)
            if found is not None and key >= found:
                continue
            if ground.best(room + slots[region], min(width, link)) >= best:
                found = key
    if found is None:
        return None
    return found[3], found[4], min(width, -found[0])


def _searched(ground: _Ground, seed: int) -> Path | None:
    """A chain for the least number of stages where growth found none, with as many stages as it can take."""
    least = ground.counts.need_bps[0]
    sites = {
        region: Site(slots, 2 if ground.access[region] >= 2 * least else 1)
        for region, slots in ground.slots.items()
        if ground.access[region] >= least
    }
    linked = {
        (a, b)
        for a in sites
        for b, own in ground.residual.neighbours(a)
        if b in sites and a < b and own >= least
    }
    begins = [region for region in ground.begins if region in sites]
    chain = search_chain(sites, linked, begins, ground.counts.floor, ground.max_regions, seed)
    if chain is None:
        return None
    width: Bandwidth = math.inf
    for position, (a, b) in enumerate(pairwise(chain)):
        at_a = ground.access[a] / (2 if position else 1)
        at_b = ground.access[b] / (2 if position + 2 < len(chain) else 1)
        width = min(width, ground.residual.own_pair_bps(a, b), at_a, at_b)
    best = ground.best(sum(ground.slots[region] for region in chain), width)
    return Path(chain, ground.counts.counts[best])
