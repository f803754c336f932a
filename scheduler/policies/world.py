"""What the policies look at in one round: prices of now, what is free, and how a choice becomes a placement."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise

from scheduler.allocator import Offer, Rate, Share
from scheduler.cluster import Cluster, PoolKey
from scheduler.cost import electricity_usd_per_hour, facility_kw
from scheduler.evaluate import Evaluation, evaluate
from scheduler.network import Residual
from scheduler.options import Candidate, Demand
from scheduler.placement import Cut, Segment
from scheduler.profile import stage_profiles
from scheduler.snapshot import Snapshot

Grants = Callable[[Sequence[tuple[str, str]], int], Sequence[int] | None]
"""(crossings of a chain, what each needs in bit/s) -> what each is granted; None if that cannot be."""


@dataclass(frozen=True, slots=True)
class World:
    """One round of decisions. `residual` shrinks as jobs start; nothing else changes."""

    cluster: Cluster
    residual: Residual
    rates: Mapping[PoolKey, Rate]
    prices_usd_per_kwh: Mapping[str, float | None]
    stale_since_s: Mapping[str, float]
    """Of the regions whose price is not known any more: when the last that was told began to hold."""
    seed: int

    @classmethod
    def of(cls, snapshot: Snapshot, residual: Residual, seed: int) -> World:
        """The world of a snapshot, with this much of it free."""
        prices: dict[str, float | None] = {}
        stale: dict[str, float] = {}
        for region in residual.topology.regions:
            series = snapshot.electricity.get(region)
            prices[region] = None if series is None else series.at(snapshot.now_s)
            if series is not None and series.stale_since_s is not None:
                stale[region] = series.stale_since_s
        cluster = snapshot.cluster
        rates = {key: _rate(cluster, key, prices[key[0]]) for key in cluster.pools}
        return cls(cluster, residual, rates, prices, stale, seed)

    def with_residual(self, residual: Residual) -> World:
        """The same prices over another residual: what would be if so much were free."""
        return replace(self, residual=residual)

    def offers(self, demand: Demand, candidate: Candidate) -> list[Offer]:
        """Every pool of the candidate with a free slot, by region and type."""
        size, free = demand.gpus_per_stage, self.residual.free_gpus
        return [
            Offer(pool, slots, self.rates[pool]) for pool in candidate.pools if (slots := free(pool) // size)
        ]

    def place(self, demand: Demand, shares: Sequence[Share], grants: Grants) -> Evaluation | None:
        """The placement with these stages in pipeline order, evaluated; None if it is not granted or does not fit.

        A cut needs A / pace of the slowest stage that really stands somewhere, in whole bits per second.
        """
        segments = tuple(
            Segment(region, gpu_type, stages, demand.gpus_per_stage) for (region, gpu_type), stages in shares
        )
        crossings = [(a.region, b.region) for a, b in pairwise(segments) if a.region != b.region]
        cuts: tuple[Cut, ...] = ()
        if crossings:
            types = self.cluster.gpu_types
            gpus = [types[segment.gpu_type] for segment in segments for _ in range(segment.stages)]
            pace_s = max(stage.pace_s for stage in stage_profiles(demand.spec, gpus))
            granted = grants(crossings, max(1, math.ceil(demand.boundary_bits / pace_s)))
            if granted is None:
                return None
            latency_s = self.residual.topology.pair_latency_s
            cuts = tuple(
                Cut(a, b, bandwidth, latency_s[a, b])
                for (a, b), bandwidth in zip(crossings, granted, strict=True)
            )
        evaluation = evaluate(demand.spec, self.cluster, segments, cuts)
        return evaluation if evaluation.fits else None


def regions_of(offers: Iterable[Offer]) -> dict[str, list[Offer]]:
    """The offers by region; both in the order in which they are given."""
    return {region: list(group) for region, group in groupby(offers, key=lambda each: each.region)}


def _rate(cluster: Cluster, pool: PoolKey, price_usd_per_kwh: float | None) -> Rate:
    if price_usd_per_kwh is None:
        return Rate(unknown=True, usd_per_hour=0.0)
    kilowatts = facility_kw(1, cluster.gpu_types[pool[1]].power_w, cluster.regions[pool[0]].pue)
    return Rate(unknown=False, usd_per_hour=electricity_usd_per_hour(price_usd_per_kwh, kilowatts))
