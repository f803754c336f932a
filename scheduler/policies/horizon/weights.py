"""What a second, a GPU-second and a dollar are worth to each other, estimated from the jobs that there are.

Scores are in seconds of completion time. A dollar is worth as many seconds as make the weight of the knob: with
Σ T and Σ C the run times and bills that the jobs of now and of late would have at their fastest, an electricity
dollar is w·ΣT/ΣC. So the scale follows the jobs and the prices, without hindsight.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from scheduler.cluster import Cluster
from scheduler.cost import SECONDS_PER_HOUR, egress_bytes_per_iteration, egress_usd
from scheduler.objective import Objective
from scheduler.options import Demand
from scheduler.policies.horizon.config import HorizonConfig
from scheduler.policies.horizon.ladder import ladders_of
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
        full = min(1.0, pressure / config.full_pressure)
        cost = config.idle_part + (1 - config.idle_part) * full
        return Weights(self.gpu_s * full, self.electricity_s * cost, self.egress_s * cost)


@dataclass(frozen=True, slots=True)
class Sample:
    """What one job would come to at its fastest, alone."""

    run_s: float
    electricity_usd: float
    egress_usd: float


def sample(
    demand: Demand, steps: float, cluster: Cluster, usd_per_kwh: float, egress_per_gb: float
) -> Sample | None:
    """A job on K* stages at mean prices; None if it can run nowhere."""
    ladders = ladders_of(demand, cluster)
    if not ladders:
        return None
    ladder = min(ladders, key=lambda each: each.iteration_s[-1])
    run_s = steps * float(ladder.iteration_s[-1])
    sizes = [cluster.pools[pool].gpus for pool in ladder.candidate.pools]
    cuts = max(0.0, float(ladder.gpus[-1]) * len(sizes) / sum(sizes) - 1)
    volume = egress_bytes_per_iteration(boundary_bytes(demand.spec), demand.spec.training.micro_batches)
    return Sample(
        run_s,
        float(ladder.draw_kw[-1]) * run_s / SECONDS_PER_HOUR * usd_per_kwh,
        egress_usd(2 * cuts * steps * volume, egress_per_gb),
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
    """1 at an equal weight, 0 at the fastest."""
    weight = objective.weight_jct
    return min(_CHEAPEST, (1.0 - weight) / weight) if weight > 0 else _CHEAPEST
