"""Why a job waits, region by region, and what would let it start.

Everything under `would_start` has been tried: the policy finds a place for the job once that one thing is so and
nothing else changes (jobs before it in the queue may still take what becomes free).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from scheduler.cluster import Cluster
from scheduler.errors import InvalidValueError
from scheduler.evaluate import evaluate
from scheduler.job import JobSpec, PlacementRule, Recompute
from scheduler.network import Residual
from scheduler.options import Demand, Demands
from scheduler.placement import Cut
from scheduler.plan import Hold, Reject, Start, Verdict
from scheduler.policies import POLICIES, PolicyConfig
from scheduler.policies.horizon.policy import HorizonPolicy
from scheduler.policies.proposal import Proposal, plural
from scheduler.policies.queueing import QueuePolicy, QueueRound
from scheduler.policies.verdicts import lack_of_bandwidth, narrow_links
from scheduler.policies.world import World
from scheduler.reasons import Reason, ReasonCode
from scheduler.snapshot import RunningJob, Snapshot, WaitingJob
from scheduler.units import format_bandwidth, format_duration

MOST_ENDS = 8
"""How many ends of running jobs, soonest first, are looked at together."""


@dataclass(frozen=True, slots=True)
class RegionVerdict:
    """What stands between a job and one region. No reason: the region could take part now."""

    region: str
    free_gpus: int
    """Of types that the job can use."""
    stages: int
    """Whole stages of the job that these hold."""
    reasons: tuple[Reason, ...]


@dataclass(frozen=True, slots=True)
class Explanation:
    """Where a job of the queue stands after one round of the policy.

    `position` counts from 1 among those that stay waiting, 0 if the job starts in this round or is refused;
    `queue_length` is how many stay waiting. `blocking_jobs` are running jobs, soonest end first, whose ends
    together make room for it; empty where no few of them would.
    """

    job_id: str
    position: int
    queue_length: int
    reasons: tuple[Reason, ...]
    regions: tuple[RegionVerdict, ...]
    would_start: tuple[str, ...]
    blocking_jobs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Case:
    """A job and the world in which it is tried again with something changed."""

    policy: QueuePolicy
    job: WaitingJob
    demand: Demand
    world: World

    def tried_as(self, spec: JobSpec, avoid_regions: frozenset[str] | None = None) -> Proposal | None:
        """What the policy would do with the same job under another specification."""
        avoid = self.job.avoid_regions if avoid_regions is None else avoid_regions
        job = replace(self.job, spec=spec, avoid_regions=avoid)
        demand = Demands(self.world.residual.topology).of(job, as_named=self.policy.as_named)
        return self.policy.place(demand, self.world)

    def fits_with(self, residual: Residual) -> bool:
        """Whether it would start on another residual."""
        return self.policy.place(self.demand, self.world.with_residual(residual)) is not None


def explain(snapshot: Snapshot, config: PolicyConfig, job_id: str) -> Explanation:
    """Explains one waiting job of a snapshot under a policy. Raises InvalidValueError if no such job waits."""
    policy = POLICIES[config.name]
    if isinstance(policy, HorizonPolicy):
        policy = policy.verdicts
    round_ = QueueRound.of(policy, snapshot, strict=config.strict, seed=config.seed)
    found: tuple[_Case, Verdict] | None = None
    for job, demand in round_.queue:
        mine = job.spec.job_id == job_id
        world = round_.world.with_residual(round_.world.residual.clone()) if mine else round_.world
        decision = round_.decide(job, demand)
        if mine:
            found = (_Case(policy, job, demand, world), decision)
    if found is None:
        raise InvalidValueError("job_id", job_id, "a job that waits in this snapshot")
    case, decision = found
    fixes, blocking = _fixes(case, decision, snapshot, round_.head)
    return Explanation(
        job_id=job_id,
        position=decision.position if isinstance(decision, Hold) else 0,
        queue_length=round_.held,
        reasons=() if isinstance(decision, Start) else decision.reasons,
        regions=tuple(_verdict(case, region) for region in case.world.residual.topology.regions),
        would_start=fixes,
        blocking_jobs=blocking,
    )


def _verdict(case: _Case, region: str) -> RegionVerdict:
    """Filtered, or too few free GPUs, or links to all other regions with room that are too narrow."""
    demand, world = case.demand, case.world
    for name, why in demand.filtered:
        if name == region:
            return RegionVerdict(region, 0, 0, (Reason(ReasonCode.REGION_FILTERED, why, region=region),))
    size = demand.gpus_per_stage
    usable = [name for name, floor in demand.floor_by_type if floor is not None]
    free = sum(world.residual.free_gpus((region, name)) for name in usable)
    stages = sum(world.residual.free_gpus((region, name)) // size for name in usable)
    least = min((floor for _, floor in demand.floor_by_type if floor is not None), default=0)
    wanted = 1 if case.policy.crosses_regions else least
    if stages < wanted or not usable:
        detail = f"{plural(free, 'usable GPU')} free, needs {wanted * size} ({plural(wanted, 'stage')})"
        reason = Reason(
            ReasonCode.GPUS_EXHAUSTED, detail, region=region, needed=wanted * size, available=free
        )
        return RegionVerdict(region, free, stages, (reason,))
    reasons: list[Reason] = []
    if stages < least and demand.candidates:
        need = case.policy.need_bps(demand.candidates[0])
        roomy = sorted({offer.region for offer in world.offers(demand, demand.candidates[0])} - {region})
        lacks = [lack_of_bandwidth(world.residual, region, other, need) for other in roomy]
        if None not in lacks:  # else it can be joined with one of them
            reasons = [lack for lack in lacks if lack is not None]
    return RegionVerdict(region, free, stages, tuple(reasons))


def _fixes(
    case: _Case, decision: Verdict, snapshot: Snapshot, head: str | None
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(what would let the job start, nearest first; the running jobs whose end would)."""
    match decision:
        case Start():
            return ("it starts in this round",), ()
        case Reject():
            empty = case.world.with_residual(Residual.empty(snapshot.cluster))
            return tuple(_changes(replace(case, world=empty))), ()
        case Hold(reasons=reasons):
            if reasons[0].code is ReasonCode.BLOCKED_BY_HEAD:
                return (f"once {head}, the head of the queue, has started or left (strict order)",), ()
            if reasons[0].code is ReasonCode.NO_CAPACITY_YET:
                return ("once a node with GPUs joins",), ()
            blocking = _blocking(case, snapshot)
            fixes = [_when_ended(blocking)] if blocking else []
            fixes += [*_wider_link(case), *_changes(case)]
            return tuple(fixes), tuple(job.spec.job_id for _, job in blocking)


def _blocking(case: _Case, snapshot: Snapshot) -> list[tuple[float, RunningJob]]:
    """The soonest single end that makes room; if none does, the fewest first ends that do together."""
    ends = sorted(
        ((_left_s(job, snapshot.cluster), job) for job in snapshot.running),
        key=lambda each: (each[0], each[1].spec.job_id),
    )
    for end in ends:
        residual = case.world.residual.clone()
        residual.give_back(end[1].allocation.placement)
        if case.fits_with(residual):
            return [end]
    residual = case.world.residual.clone()
    for number, (_, job) in enumerate(ends[:MOST_ENDS], 1):
        residual.give_back(job.allocation.placement)
        if case.fits_with(residual):
            return ends[:number]
    return []


def _left_s(job: RunningJob, cluster: Cluster) -> float:
    """Seconds until a running job has done the steps it declared; infinite if its GPU type is gone."""
    placement = job.allocation.placement
    if any(segment.gpu_type not in cluster.gpu_types for segment in placement.segments):
        return math.inf
    iteration_s = evaluate(job.spec, cluster, placement.segments, placement.cuts).iteration_s
    return job.remaining_steps * iteration_s


def _when_ended(blocking: list[tuple[float, RunningJob]]) -> str:
    names = [job.spec.job_id for _, job in blocking]
    last_s = max(left_s for left_s, _ in blocking)
    when = f" (in about {format_duration(last_s)}, by the steps declared)" if math.isfinite(last_s) else ""
    if len(names) == 1:
        return f"when {names[0]} ends{when}"
    return f"when {', '.join(names[:-1])} and {names[-1]} have ended{when}"


def _wider_link(case: _Case) -> Iterator[str]:
    """The one pair of regions between which a little more bandwidth is enough."""
    if not case.policy.crosses_regions:
        return
    for candidate in case.demand.candidates:
        need = case.policy.need_bps(candidate)
        for lack in narrow_links(case.demand, candidate, case.world, need):
            if lack.link is None or lack.code is ReasonCode.NO_LINK:
                continue
            a, b = lack.link
            missing = need - (lack.available or 0.0)
            latency_s = case.world.residual.topology.pair_latency_s[a, b]
            if case.fits_with(case.world.residual.widened([Cut(a, b, missing, latency_s)])):
                yield f"with {format_bandwidth(missing)} more between {a} and {b}: {lack.detail}"
                return


def _changes(case: _Case) -> Iterator[str]:
    """What the user could change in the job itself."""
    spec = case.job.spec
    parallelism = spec.parallelism
    if parallelism.stages_min is not None or parallelism.stages_max is not None:
        free = replace(parallelism, stages_min=None, stages_max=None)
        proposal = case.tried_as(replace(spec, parallelism=free))
        if proposal is not None:
            stages = proposal.evaluation.placement.stages
            yield f"with parallelism.stages: {stages} (now {_bounds(spec)})"
    if spec.training.recompute is not Recompute.FULL and spec.profile is None:
        proposal = case.tried_as(replace(spec, training=replace(spec.training, recompute=Recompute.FULL)))
        if proposal is not None:
            count = plural(proposal.evaluation.placement.stages, "stage")
            yield f"with training.recompute: full, which takes less memory ({count})"
    if spec.placement != PlacementRule() or case.job.avoid_regions:
        proposal = case.tried_as(replace(spec, placement=PlacementRule()), avoid_regions=frozenset())
        if proposal is not None:
            chain = proposal.evaluation.placement.describe()
            yield f"if its placement rule and cool-down let it use {chain}"


def _bounds(spec: JobSpec) -> str:
    least, most = spec.parallelism.stages_min or 1, spec.parallelism.stages_max or spec.model.layers
    return str(least) if least == most else f"{least}..{most}"
