"""A dry run: what the policy would decide about a job now, and what the job would come to. Nothing is stored."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any

from scheduler import cost
from scheduler.cluster import Ownership
from scheduler.errors import InvalidValueError
from scheduler.evaluate import Evaluation, as_planned
from scheduler.job import JobSpec
from scheduler.plan import Decision, Hold, Reject, Start
from scheduler.policies import decide
from scheduler.profile import boundary_bytes
from scheduler.reasons import Reason
from scheduler.snapshot import Snapshot, WaitingJob
from service import dry_jobs
from service.access import Principal
from service.displacement import Displaced, displaced
from service.dry_jobs import DRY_JOB_ID
from service.job_views import EnergyView, SpentView
from service.policy import not_planned_by, policy_of
from service.promises import starting_at_once
from service.services import Services
from service.tenancy import hide_in, hider


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a placement would come to, if nothing else happens and at the prices known now."""

    evaluation: Evaluation
    duration_s: float
    usd_per_hour: SpentView
    cost_usd: SpentView
    energy_kwh: EnergyView
    unpriced_regions: tuple[str, ...]

    @property
    def bubble_fraction(self) -> float:
        """Share of an iteration in which the mean stage has nothing to compute."""
        return 1.0 - fmean(self.evaluation.busy_fraction)


@dataclass(frozen=True, slots=True)
class DryRun:
    """The decision, the snapshot's facts, and an estimate where the job would start."""

    decision: Decision
    at_s: float
    snapshot_version: int
    policy: str
    queue_length: int
    reasons: tuple[Reason, ...]
    why: str | None
    at_once: bool
    """Whether what it needs is free now; else jobs that stop have to leave it first."""
    displaces: tuple[Displaced, ...]
    estimate: Estimate | None
    not_planned_by: list[str]
    """Limits of the job that the policy does not plan by."""
    job: dict[str, Any]


@dataclass(slots=True)
class _Meter:
    """Sums up what a placement costs."""

    spent: SpentView = field(default_factory=SpentView)
    rate: SpentView = field(default_factory=SpentView)
    energy: EnergyView = field(default_factory=EnergyView)
    unpriced: set[str] = field(default_factory=set)

    def add(self, kind: str, amount_usd: float, duration_s: float) -> None:
        """An amount over the whole run; its rate is the mean."""
        self.spent.add(kind, amount_usd)
        self.rate.add(kind, amount_usd * cost.SECONDS_PER_HOUR / duration_s)


async def plan(services: Services, principal: Principal, document: dict[str, Any]) -> DryRun:
    """What would be decided about this job of the caller's now, and what that would do to others.

    Raises InvalidInputError or ForbiddenError as a submission would.
    """
    dry = await dry_jobs.read(services, principal, document)
    parsed, spec, snapshot, now_s = dry.document, dry.spec, dry.snapshot, dry.at_s
    job = WaitingJob(spec, remaining_steps=parsed.training.steps)
    with_job = replace(snapshot, waiting=(*snapshot.waiting, job))
    config = policy_of(services.settings)
    made = await services.compute.run(lambda: decide(with_job, config), principal.token_id)
    decision = next(found for found in made.decisions if found.job_id == DRY_JOB_ID)
    changed: tuple[Displaced, ...] = ()
    if isinstance(decision, Start):
        without = await services.compute.run(lambda: decide(snapshot, config), principal.token_id)
        changed = displaced(snapshot, made, without)
    hide = hider(snapshot, principal.scope)
    return DryRun(
        decision=decision,
        at_s=now_s,
        snapshot_version=snapshot.version,
        policy=config.name,
        queue_length=sum(isinstance(found, Hold) for found in made.decisions),
        reasons=hide_in(decision.reasons, hide) if isinstance(decision, Hold | Reject) else (),
        why=hide(decision.why) if isinstance(decision, Start) else None,
        at_once=DRY_JOB_ID in starting_at_once(with_job, made),
        displaces=tuple(replace(each, job_id=hide(each.job_id), why=hide(each.why)) for each in changed),
        estimate=estimate(snapshot, spec, decision) if isinstance(decision, Start) else None,
        not_planned_by=not_planned_by(parsed, config.name),
        job=parsed.completed(),
    )


def estimate(snapshot: Snapshot, spec: JobSpec, start: Start) -> Estimate:
    """Time, energy and money of all declared steps on a placement, by the formulas of `scheduler.cost`."""
    evaluation = as_planned(spec, snapshot.cluster, start.placement)
    duration_s = spec.training.steps * evaluation.iteration_s
    meter = _Meter()
    _meter_segments(snapshot, evaluation, duration_s, meter)
    _meter_cuts(snapshot, spec, evaluation, duration_s, meter)
    return Estimate(
        evaluation, duration_s, meter.rate, meter.spent, meter.energy, tuple(sorted(meter.unpriced))
    )


def _meter_segments(snapshot: Snapshot, evaluation: Evaluation, duration_s: float, meter: _Meter) -> None:
    placement, types = evaluation.placement, snapshot.cluster.gpu_types
    powers_w = cost.segment_powers_w(placement, evaluation.busy_fraction, types)
    for segment, power_w in zip(placement.segments, powers_w, strict=True):
        region = snapshot.cluster.regions[segment.region]
        kilowatts = cost.facility_kw(segment.gpus, power_w, region.pue)
        energy_kwh = cost.energy_kwh(kilowatts, duration_s)
        meter.energy.by_region[region.name] = meter.energy.by_region.get(region.name, 0.0) + energy_kwh
        pool = snapshot.cluster.pools[segment.region, segment.gpu_type]
        if pool.ownership is Ownership.RENTED:
            rent_usd = cost.rent_usd(segment.gpus, duration_s, pool.rent_usd_per_gpu_hour)
            meter.add("rent", rent_usd, duration_s)
            continue
        electricity_usd = _electricity_usd(snapshot, region.name, duration_s, kilowatts)
        if electricity_usd is None:
            meter.unpriced.add(region.name)
        meter.add("electricity", electricity_usd or 0.0, duration_s)


def _electricity_usd(snapshot: Snapshot, region: str, duration_s: float, kilowatts: float) -> float | None:
    known = snapshot.electricity.get(region)
    if known is None:
        return None
    try:
        return cost.electricity_usd(known.series, snapshot.now_s, snapshot.now_s + duration_s, kilowatts)
    except InvalidValueError:  # nothing is known for now yet, only for later
        return None


def _meter_cuts(
    snapshot: Snapshot, spec: JobSpec, evaluation: Evaluation, duration_s: float, meter: _Meter
) -> None:
    sent_bytes = spec.training.steps * cost.egress_bytes_per_iteration(
        boundary_bytes(spec), spec.training.micro_batches
    )
    for cut in evaluation.placement.cuts:
        for ends in ((cut.src, cut.dst), (cut.dst, cut.src)):
            usd_per_gb = snapshot.cluster.links[ends].egress_usd_per_gb
            meter.add("egress", cost.egress_usd(sent_bytes, usd_per_gb), duration_s)
