"""The jobs of a decision as horizon sees them, waiting and running alike, and where they stand."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import NormalDist
from typing import Final

from scheduler.cluster import Cluster, Ownership
from scheduler.cost import (
    SECONDS_PER_HOUR,
    egress_bytes_per_iteration,
    egress_usd,
    facility_kw,
    rent_usd,
    segment_powers_w,
)
from scheduler.evaluate import Evaluation, evaluate
from scheduler.job import Elasticity, JobSpec
from scheduler.options import BITS_PER_BYTE, Demand
from scheduler.placement import Placement, Segment, Transfer
from scheduler.profile import boundary_bytes
from scheduler.restart import state_of, storage_s
from scheduler.snapshot import RunningJob, StateSpan, WaitingJob


@dataclass(frozen=True, slots=True, eq=False)
class Seat:
    """Where a job stands, from when it steps, and what it draws and sends there. Times in epoch seconds."""

    placement: Placement
    iteration_s: float
    ready_s: float
    transfers: tuple[Transfer, ...]
    """Bandwidth that is held beside the placement's cuts until `ready_s`."""
    draw_kw: tuple[tuple[str, float], ...]
    """(region, mean draw before PUE of what is owned there)."""
    rent_usd_per_hour: float
    """Of what is rented: electricity is in the rent."""
    egress_usd_per_step: float
    egress_usd_once: float
    """Of the transfers."""
    storage_s: float
    """How long its stages take to write, or to read, the state of the job."""
    state: tuple[StateSpan, ...]
    """Where the state of the job lies once it has stepped there."""

    def begun(self, ready_s: float, transfers: tuple[Transfer, ...], cluster: Cluster) -> Seat:
        """The same place where the job steps from then on, once these have arrived."""
        return Seat(
            self.placement,
            self.iteration_s,
            ready_s,
            transfers,
            self.draw_kw,
            self.rent_usd_per_hour,
            self.egress_usd_per_step,
            _sent_usd(transfers, cluster),
            self.storage_s,
            self.state,
        )


@dataclass(frozen=True, slots=True)
class Option:
    """A seat for a job, its score, and what the score is made of."""

    score_s: float
    seat: Seat
    run_s: float
    """From now until the job would end there."""
    restart_s: float
    """The part of it before the first step."""


def seat_of(
    spec: JobSpec,
    cluster: Cluster,
    evaluation: Evaluation,
    ready_s: float,
    transfers: tuple[Transfer, ...] = (),
) -> Seat:
    """The seat that an evaluated placement is."""
    placement, links = evaluation.placement, cluster.links
    rents = [_rent_usd_per_gpu_hour(segment, cluster) for segment in placement.segments]
    powers = segment_powers_w(placement, evaluation.busy_fraction, cluster.gpu_types)
    volume = egress_bytes_per_iteration(boundary_bytes(spec), spec.training.micro_batches)
    return Seat(
        placement,
        evaluation.iteration_s,
        ready_s,
        transfers,
        tuple(
            (segment.region, facility_kw(segment.gpus, power_w, 1.0))
            for segment, power_w, rent in zip(placement.segments, powers, rents, strict=True)
            if rent is None
        ),
        math.fsum(
            rent_usd(segment.gpus, SECONDS_PER_HOUR, rent)
            for segment, rent in zip(placement.segments, rents, strict=True)
            if rent is not None
        ),
        math.fsum(
            egress_usd(volume, links[src, dst].egress_usd_per_gb)
            for cut in placement.cuts
            for src, dst in ((cut.src, cut.dst), (cut.dst, cut.src))
        ),
        _sent_usd(transfers, cluster),
        storage_s(spec, cluster, placement),
        state_of(spec, placement),
    )


def _sent_usd(transfers: Sequence[Transfer], cluster: Cluster) -> float:
    return math.fsum(
        egress_usd(each.sent_bytes, cluster.links[each.src, each.dst].egress_usd_per_gb) for each in transfers
    )


def _rent_usd_per_gpu_hour(segment: Segment, cluster: Cluster) -> float | None:
    """None where the pool is owned."""
    pool = cluster.pools.get((segment.region, segment.gpu_type))
    return pool.rent_usd_per_gpu_hour if pool is not None and pool.ownership is Ownership.RENTED else None


@dataclass(frozen=True, slots=True)
class Limits:
    """By when a job must have ended (epoch seconds), and what it may still pay."""

    until_s: float = math.inf
    left_usd: float = math.inf

    def after(self, paid_usd: float) -> Limits:
        """What is left once so much more has been paid."""
        return self if self.left_usd == math.inf else replace(self, left_usd=self.left_usd - paid_usd)


UNLIMITED: Final = Limits()


@dataclass(frozen=True, slots=True, eq=False)
class Work:
    """A job of this decision. `steps` is how many it has probably left, whatever it declared; `declared` is what it has
    left by what it declared."""

    spec: JobSpec
    demand: Demand
    steps: float
    declared: float
    waits_since_s: float
    has_state: bool
    state: tuple[StateSpan, ...]
    brought: frozenset[str]
    """Regions where its data sets have been brought: what that cost is paid."""
    seat: Seat | None
    """Where it runs now; None if it waits."""
    movable: bool
    limits: Limits = UNLIMITED
    misses: bool = False
    """It goes on although its deadline cannot be kept any more."""

    @property
    def job_id(self) -> str:
        return self.spec.job_id

    @property
    def cut_bytes_per_step(self) -> float:
        """What one cut sends in a step in each direction."""
        boundary_bytes = self.demand.boundary_bits / BITS_PER_BYTE
        return egress_bytes_per_iteration(boundary_bytes, self.spec.training.micro_batches)

    def bringing_usd(self, placement: Placement) -> float:
        """What it still costs to bring its data sets to where it begins."""
        first = placement.segments[0].region
        return 0.0 if first in self.brought else self.demand.begins.get(first, 0.0)


def waiting_work(job: WaitingJob, demand: Demand, sigma: float) -> Work:
    """A job that waits."""
    since_s = job.spec.submit_s if job.waits_since_s is None else job.waits_since_s
    return Work(
        spec=job.spec,
        demand=demand,
        steps=_expected(job.spec.training.steps, job.remaining_steps, sigma),
        declared=float(job.remaining_steps),
        waits_since_s=since_s,
        has_state=job.generation > 1,
        state=job.state,
        brought=job.brought,
        seat=None,
        movable=job.spec.elasticity is not Elasticity.NONE,
    )


def running_work(job: RunningJob, demand: Demand, cluster: Cluster, sigma: float) -> Work:
    """A job that runs and is not stopping."""
    allocation = job.allocation
    ready_s = allocation.start_s if job.ready_s is None else job.ready_s
    evaluation = evaluate(job.spec, cluster, allocation.placement.segments, allocation.placement.cuts)
    seat = seat_of(job.spec, cluster, evaluation, ready_s, job.transfers)
    return Work(
        spec=job.spec,
        demand=demand,
        steps=_expected(job.spec.training.steps, job.remaining_steps, sigma),
        declared=float(job.remaining_steps),
        waits_since_s=allocation.start_s,
        has_state=True,
        state=seat.state,
        brought=job.brought | {allocation.placement.segments[0].region},
        seat=seat,
        movable=job.spec.elasticity is not Elasticity.NONE,
    )


def _expected(declared: int, remaining: int, sigma: float) -> float:
    """Steps that a job has probably left that declared so many and, as declared, has `remaining` left.

    The truth is taken to be log-normal around what was declared; that the job has not ended yet says that it is longer
    than what it has done.
    """
    if sigma <= 0:
        return float(remaining)
    done = (declared - remaining) / declared
    return max(1.0, declared * mean_left(round(done, 3), sigma))


@lru_cache(maxsize=65536)
def mean_left(done: float, sigma: float) -> float:
    """E[X − done | X > done] of a log-normal X with median 1 and that σ, by its partial expectation.

    E[X; X > d] = e^{σ²/2} Φ(σ − ln d / σ), P(X > d) = Φ(−ln d / σ).
    """
    mean = math.exp(sigma * sigma / 2)
    if done <= 0:
        return mean
    normal, depth = NormalDist(), math.log(done) / sigma
    survival = normal.cdf(-depth)
    if survival < 1e-9:
        return done * sigma * sigma
    return mean * normal.cdf(sigma - depth) / survival - done
