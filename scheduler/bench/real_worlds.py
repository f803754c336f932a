"""How a window of grid R differs from the scenario that it is made of."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Final

import numpy as np

from scheduler.cluster import Cluster, Pool, PoolKey
from scheduler.price import PriceSeries

_PERMUTATION: Final = 3
_YEAR_S: Final = 52 * 7 * 86400.0


def without_egress(cluster: Cluster) -> Cluster:
    """The same on a backbone of its own."""
    links = {key: replace(link, egress_usd_per_gb=0.0) for key, link in cluster.links.items()}
    return replace(cluster, links=links)


def scaled(cluster: Cluster, scale: float) -> Cluster:
    """The same with so many times its GPUs, rounded down."""
    pools = {key: replace(pool, gpus=int(pool.gpus * scale)) for key, pool in cluster.pools.items()}
    return replace(cluster, pools=pools)


def permuted(cluster: Cluster, permutation: int) -> Cluster:
    """The same pools in other regions; permutation 0 leaves them."""
    if permutation == 0:
        return cluster
    keys = sorted(cluster.pools)
    order = np.random.default_rng([_PERMUTATION, permutation]).permutation(len(keys))
    pools: dict[PoolKey, Pool] = {
        key: replace(cluster.pools[key], gpus=cluster.pools[keys[int(other)]].gpus)
        for key, other in zip(keys, order, strict=True)
    }
    return replace(cluster, pools=pools)


@lru_cache(maxsize=64)
def repeated(series: PriceSeries) -> PriceSeries:
    """The series, going on after its end with itself 52 weeks before, for half a year."""
    length = len(series.values)
    first = next(
        index for index, time_s in enumerate(series.valid_from_s) if time_s + _YEAR_S >= series.end_s
    )
    more = slice(first, min(length, first + length // 2))
    return PriceSeries(
        series.valid_from_s + tuple(time_s + _YEAR_S for time_s in series.valid_from_s[more]),
        series.values + series.values[more],
        series.known_at_s + tuple(time_s + _YEAR_S for time_s in series.known_at_s[more]),
        series.valid_from_s[more][-1] + _YEAR_S + 3600.0,
    )
