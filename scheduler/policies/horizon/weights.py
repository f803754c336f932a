"""What a second, a GPU-second and a dollar are worth to each other, estimated from the jobs that there are.

Scores are in seconds of completion time. A dollar is worth as many seconds as make the weight of the knob: with
Σ T and Σ C the run times and bills that the jobs of now and of late would have at their fastest, an electricity
dollar is w·ΣT/ΣC. So the scale follows the jobs and the prices, without hindsight.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from scheduler.cluster import Cluster
from scheduler.cost import SECONDS_PER_HOUR, egress_bytes_per_iteration, egress_usd
from scheduler.objective import Objective
from scheduler.options import Demand
from scheduler.pipeline.kernel import compiled
from scheduler.policies.horizon import rung_kernel
from scheduler.policies.horizon.config import HorizonConfig
from scheduler.policies.horizon.ground import Network, Prices
from scheduler.policies.horizon.ladder import Ladder, ladders_of
from scheduler.profile import boundary_bytes

_CHEAPEST = 40.0
"""Relative weight of cost where the knob stands at the cheapest."""


@dataclass(frozen=True, slots=True)
class Weights:
    """`gpu_s`: seconds that others lose by one GPU held for a second. `electricity_s`, `egress_s`: by dollar."""

    gpu_s: float
    electricity_s: float
    egress_s: float

    def under(self, pressure: float, config: HorizonConfig) -> Weights:
        """For a job beside which the others hold or ask for such a part of the GPUs.

        In an idle cluster nobody is kept waiting by what a job holds, and all that a cheaper seat does is to make it
        take longer: there both count less.
        """
        full = min(1.0, pressure / config.full_pressure) ** 2
        cost = config.idle_part + (1 - config.idle_part) * full
        return Weights(self.gpu_s * full, self.electricity_s * cost, self.egress_s * cost)


@dataclass(frozen=True, slots=True)
class Pace:
    """What a step of one job comes to at its fastest, alone: on K* stages."""

    iteration_s: float
    owned_kw: float
    """Draw before PUE of what is owned of its GPUs, in the mean over the pools where it may stand."""
    rent_usd_per_hour: float
    cut_bytes: float
    """Bytes that all its cuts carry, in both directions."""


@dataclass(frozen=True, slots=True)
class Sample:
    """What one job would come to at its fastest, alone."""

    run_s: float
    electricity_usd: float
    egress_usd: float


_PACES: WeakKeyDictionary[Demand, Pace | None] = WeakKeyDictionary()


def sample(
    demand: Demand, steps: float, cluster: Cluster, usd_per_kwh: float, egress_per_gb: float
) -> Sample | None:
    """A job on K* stages at mean prices; None if it can run nowhere."""
    if demand not in _PACES:
        _PACES[demand] = _pace(demand, cluster)
    pace = _PACES[demand]
    if pace is None:
        return None
    run_s = steps * pace.iteration_s
    usd_per_hour = pace.owned_kw * usd_per_kwh + pace.rent_usd_per_hour
    return Sample(
        run_s, usd_per_hour * run_s / SECONDS_PER_HOUR, egress_usd(steps * pace.cut_bytes, egress_per_gb)
    )


def _pace(demand: Demand, cluster: Cluster) -> Pace | None:
    ladders = ladders_of(demand, cluster)
    if not ladders:
        return None
    ladder = min(ladders, key=lambda each: each.iteration_s[-1])
    sizes = [cluster.pools[pool].gpus for pool in ladder.candidate.pools]
    gpus = float(ladder.gpus[-1])
    cuts = max(0.0, gpus * len(sizes) / sum(sizes) - 1)
    volume = egress_bytes_per_iteration(boundary_bytes(demand.spec), demand.spec.training.micro_batches)
    return Pace(
        float(ladder.iteration_s[-1]),
        float(ladder.draw_kw[-1]) * ladder.owned_part,
        gpus * ladder.rent_usd_per_gpu_hour,
        2 * cuts * volume,
    )


def weights_of(
    samples: Iterable[Sample],
    others: float,
    gpus: int,
    objective: Objective,
    config: HorizonConfig,
) -> Weights:
    """The weights while so many other jobs want GPUs of a cluster that has so many."""
    known = list(samples)
    run_s = math.fsum(each.run_s for each in known)
    electricity = math.fsum(each.electricity_usd for each in known)
    egress = math.fsum(each.egress_usd for each in known)
    cost = _cost_over_time(objective)
    gpu_s = config.crowding * others / max(1, gpus)
    electricity_s = cost * config.electricity_weight * run_s / electricity if electricity > 0 else 0.0
    # A dollar of egress is never worth more than one of electricity: where hardly any is paid, a little is no harm.
    egress_s = (
        min(electricity_s, cost * config.egress_weight * run_s / egress) if egress > 0 else electricity_s
    )
    return Weights(gpu_s, electricity_s, egress_s)


def _cost_over_time(objective: Objective) -> float:
    """1 at an equal weight, 0 at the fastest. Where the cheapest within a part of the fastest is asked for, it is that
    part that says how much time may be given for it."""
    if objective.cheapest_within is not None:
        return _CHEAPEST
    weight = objective.weight_jct
    return min(_CHEAPEST, (1.0 - weight) / weight) if weight > 0 else _CHEAPEST


def tempered(
    weights: Weights,
    ladders: Sequence[Ladder],
    steps: float,
    cut_bytes_per_step: float,
    prices: Prices,
    network: Network,
    config: HorizonConfig,
) -> Weights:
    """The weights of one job, such that no saving makes it much slower than it could be.

    The electricity or rent between its fastest rung and its cheapest, at mean prices, is worth at most `most_slower` of
    its time, the egress of one cut at most `most_slower_egress`. Where power is steady and regions are alike the number
    of stages is all there is to save with, and it is paid for in time; a cheaper region costs none.
    """
    if not ladders:
        return weights
    ladder = min(ladders, key=lambda each: float(each.iteration_s[-1]))
    times, gpus = ladder.iteration_s, ladder.gpus
    rung, run_s, limit_s = compiled(rung_kernel.fastest)(times, gpus, steps, weights.gpu_s)
    price = max(0.0, prices.mean_over(run_s))
    owned_part, rent = ladder.owned_part, ladder.rent_usd_per_gpu_hour
    saved_usd = compiled(rung_kernel.more_than_least_usd)(
        times, gpus, ladder.draw_kw, owned_part, rent, steps, price, rung
    )
    spread = saved_usd * weights.electricity_s
    cut = 2 * egress_usd(cut_bytes_per_step * steps, network.mean_egress_usd_per_gb) * weights.egress_s
    electricity = min(1.0, config.most_slower * limit_s / spread) if spread > 0 else 1.0
    egress = min(1.0, config.most_slower_egress * limit_s / cut) if cut > 0 else 1.0
    return Weights(weights.gpu_s, electricity * weights.electricity_s, egress * weights.egress_s)
