"""Why a job waits, region by region, and what would let it start.

Everything under `would_start` has been tried: the policy finds a place for the job once that one thing is so and
nothing else changes (jobs before it in the queue may still take what becomes free). A policy that goes down a queue is
asked for that place; one that decides over all jobs at once is asked for a whole plan, with this job alone waiting and
everything that it has just decided for the others done.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from scheduler.cluster import Cluster
from scheduler.errors import InvalidValueError
from scheduler.evaluate import evaluate
from scheduler.job import JobSpec, PlacementRule, Recompute
from scheduler.network import Residual
from scheduler.options import Demand, Demands
from scheduler.pipeline.plan.ir import LowRank
from scheduler.placement import Cut, Placement
from scheduler.plan import Hold, Move, Plan, Reject, Start, Verdict
from scheduler.policies import PolicyConfig, decide, policy_of
from scheduler.policies.proposal import plural
from scheduler.policies.queueing import QueuePolicy, QueueRound
from scheduler.policies.verdicts import lack_of_bandwidth, narrow_links
from scheduler.policies.world import World
from scheduler.profile import boundary_bytes, widest_rank
from scheduler.reasons import Reason, ReasonCode
from scheduler.snapshot import Promise, RunningJob, Snapshot, WaitingJob
from scheduler.units import format_bandwidth, format_duration

MOST_ENDS = 8
"""How many ends of running jobs, soonest first, are looked at together."""
MOST_DECISIONS = 10
"""How many whole plans one explanation may ask for beyond the first."""


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
    """A job and the world in which a queueing policy tries it again with something changed."""

    policy: QueuePolicy
    job: WaitingJob
    demand: Demand
    world: World
    running: tuple[RunningJob, ...]
    """Jobs whose end would free something."""

    def as_another(self, job: WaitingJob) -> Placement | None:
        """Where the job would start under another specification."""
        demand = Demands(self.world.residual.topology).of(job, growth=self.policy.growth)
        return self._placed(demand, self.world.residual)

    def once_ended(self, jobs: Sequence[RunningJob]) -> Placement | None:
        """Where it would start if these had ended."""
        residual = self.world.residual.clone()
        for job in jobs:
            residual.give_back(job.allocation.placement, job.transfers)
        return self._placed(self.demand, residual)

    def with_more(self, cut: Cut) -> Placement | None:
        """Where it would start with so much more bandwidth between two regions."""
        return self._placed(self.demand, self.world.residual.widened([cut]))

    def when_empty(self) -> Tries:
        """The same with nothing running, as long as it may be refused for good."""
        return replace(self, world=self.world.with_residual(Residual.empty(self.world.cluster)))

    def _placed(self, demand: Demand, residual: Residual) -> Placement | None:
        proposal = self.policy.place(demand, self.world.with_residual(residual))
        return None if proposal is None else proposal.evaluation.placement


@dataclass(slots=True)
class _PlanCase:
    """The same for a policy that decides over all jobs at once.

    `after` is the world once everything is done that it has just decided for others, with this job alone waiting.
    What cannot work by `likely`, a queueing policy, is not put to it: a plan takes long.
    """

    likely: _Case
    after: Snapshot
    config: PolicyConfig
    decisions_left: int = MOST_DECISIONS

    @property
    def running(self) -> tuple[RunningJob, ...]:
        return tuple(job for job in self.after.running if not job.stopping)

    def as_another(self, job: WaitingJob) -> Placement | None:
        return self._placed(replace(self.after, waiting=(job,)))

    def once_ended(self, jobs: Sequence[RunningJob]) -> Placement | None:
        if self.likely.once_ended(jobs) is None:
            return None
        ended = {job.spec.job_id for job in jobs}
        running = (
            replace(job, stopping=job.stopping or job.spec.job_id in ended) for job in self.after.running
        )
        return self._placed(replace(self.after, running=tuple(running)))

    def with_more(self, cut: Cut) -> Placement | None:
        if self.likely.with_more(cut) is None:
            return None
        return self._placed(replace(self.after, cluster=_widened(self.after.cluster, cut)))

    def when_empty(self) -> Tries:
        # Without nodes the counts of the pools bind: all of their GPUs are free.
        cluster = replace(self.after.cluster, nodes=())
        return replace(self, after=replace(self.after, cluster=cluster, running=(), promised=()))

    def _placed(self, world: Snapshot) -> Placement | None:
        if not self.decisions_left:
            return None
        self.decisions_left -= 1
        starts = decide(world, self.config).starts
        return starts[0].placement if starts else None


Tries = _Case | _PlanCase


def explain(snapshot: Snapshot, config: PolicyConfig, job_id: str) -> Explanation:
    """Explains one waiting job of a snapshot under a policy. Raises InvalidValueError if no such job waits."""
    if all(job.spec.job_id != job_id for job in snapshot.waiting):
        raise InvalidValueError("job_id", job_id, "a job that waits in this snapshot")
    policy = policy_of(config)
    if isinstance(policy, QueuePolicy):
        return _by_queue(snapshot, policy, config, job_id)
    return _by_plan(snapshot, policy.verdicts, config, job_id)


def _by_queue(snapshot: Snapshot, policy: QueuePolicy, config: PolicyConfig, job_id: str) -> Explanation:
    """The job at its turn in the queue, on what those before it have left."""
    round_ = QueueRound.of(policy, snapshot, strict=config.strict, seed=config.seed)
    found: list[tuple[_Case, Verdict]] = []
    for job, demand in round_.queue:
        mine = job.spec.job_id == job_id
        world = round_.world.with_residual(round_.world.residual.clone()) if mine else round_.world
        decision = round_.decide(job, demand)
        if mine:
            found.append((_Case(policy, job, demand, world, snapshot.running), decision))
    ((case, decision),) = found
    return _explanation(case, case, decision, round_.held, round_.head)


def _by_plan(snapshot: Snapshot, verdicts: QueuePolicy, config: PolicyConfig, job_id: str) -> Explanation:
    """The job's decision in a whole plan, and what another plan would have to find for it to start."""
    plan = decide(snapshot, config)
    decision = next(each for each in plan.decisions if each.job_id == job_id)
    (job,) = [each for each in snapshot.waiting if each.spec.job_id == job_id]
    after = _after(snapshot, plan, job)
    residual = Residual.after_stops(after)
    demand = Demands(residual.topology).of(job)
    case = _Case(verdicts, job, demand, World.of(snapshot, residual, config.seed), ())
    held = sum(isinstance(each, Hold) for each in plan.decisions)
    if not isinstance(decision, Start | Hold | Reject):
        raise InvalidValueError("plan", type(decision).__name__, "a decision for a job that waits")
    return _explanation(case, _PlanCase(case, after, config), decision, held, None)


def _after(snapshot: Snapshot, plan: Plan, job: WaitingJob) -> Snapshot:
    """The world when the plan is on its way: what it stops stops, what it gives away is promised; this job waits."""
    leaving = {each.job_id for each in plan.preemptions} | {each.job_id for each in plan.moves}
    steps = {each.spec.job_id: (each.spec, each.remaining_steps) for each in snapshot.waiting}
    steps |= {each.spec.job_id: (each.spec, each.remaining_steps) for each in snapshot.running}
    given: tuple[Start | Move, ...] = (*plan.starts, *plan.moves)
    promised = [
        Promise(spec, each.placement, remaining, 0, each.transfers)
        for each in given
        for spec, remaining in (steps[each.job_id],)
        if each.job_id != job.spec.job_id
    ]
    running = (
        replace(each, stopping=each.stopping or each.spec.job_id in leaving) for each in snapshot.running
    )
    return replace(snapshot, waiting=(job,), running=tuple(running), promised=(*snapshot.promised, *promised))


def _explanation(case: _Case, tries: Tries, decision: Verdict, held: int, head: str | None) -> Explanation:
    fixes, blocking = _fixes(case, tries, decision, head)
    return Explanation(
        job_id=case.job.spec.job_id,
        position=decision.position if isinstance(decision, Hold) else 0,
        queue_length=held,
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
    case: _Case, tries: Tries, decision: Verdict, head: str | None
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(what would let the job start, nearest first; the running jobs whose end would)."""
    match decision:
        case Start():
            return ("it starts in this round",), ()
        case Reject():
            empty = tries.when_empty()
            return (*_narrower_cut(case, empty), *_changes(case.job, empty)), ()
        case Hold(reasons=reasons):
            if reasons[0].code is ReasonCode.BLOCKED_BY_HEAD:
                return (f"once {head}, the head of the queue, has started or left (strict order)",), ()
            if reasons[0].code is ReasonCode.NO_CAPACITY_YET:
                return ("once a node with GPUs joins",), ()
            if isinstance(tries, _PlanCase) and tries.as_another(case.job) is not None:
                return ("once those before it in the queue have started or left",), ()
            blocking = _blocking(tries, case.world.cluster)
            fixes = [_when_ended(blocking)] if blocking else []
            fixes += [*_wider_link(case, tries), *_narrower_cut(case, tries), *_changes(case.job, tries)]
            return tuple(fixes), tuple(job.spec.job_id for _, job in blocking)


def _blocking(tries: Tries, cluster: Cluster) -> list[tuple[float, RunningJob]]:
    """The soonest single end that makes room; if none does, the fewest first ends that do together."""
    ends = sorted(
        ((_left_s(job, cluster), job) for job in tries.running),
        key=lambda each: (each[0], each[1].spec.job_id),
    )
    for end in ends:
        if tries.once_ended([end[1]]) is not None:
            return [end]
    for number in range(2, min(len(ends), MOST_ENDS) + 1):
        if tries.once_ended([job for _, job in ends[:number]]) is not None:
            return ends[:number]
    return []


def _left_s(job: RunningJob, cluster: Cluster) -> float:
    """Seconds until a running job has done the steps it declared; infinite if its GPU type is gone."""
    if job.stopping:
        return 0.0
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


def _wider_link(case: _Case, tries: Tries) -> Iterator[str]:
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
            if tries.with_more(Cut(a, b, missing, latency_s)) is not None:
                yield f"with {format_bandwidth(missing)} more between {a} and {b}: {lack.detail}"
                return


def _narrower_cut(case: _Case, tries: Tries) -> Iterator[str]:
    """The highest rank of a codec with which a cut keeps up on a link too narrow for it: of the built-in worker."""
    spec = case.job.spec
    if (
        not case.policy.crosses_regions
        or not spec.training.splits_backward
        or spec.training.schedule.parts > 1
    ):
        return
    for candidate in case.demand.candidates:
        need = case.policy.need_bps(candidate)
        for lack in narrow_links(case.demand, candidate, case.world, need):
            rank = widest_rank(spec, boundary_bytes(spec) * (lack.available or 0.0) / need)
            if lack.code is ReasonCode.NO_LINK or not 1 <= rank < _rank_of(spec):
                continue
            coded = replace(spec, parallelism=replace(spec.parallelism, codec=LowRank(rank)))
            placement = tries.as_another(replace(case.job, spec=coded))
            if placement is not None:
                codec = f"parallelism.codec: {{mapl: {{rank: {rank}}}}}, which changes what is learned"
                yield f"with {codec} ({placement.describe()}): {lack.detail}"
                return


def _rank_of(spec: JobSpec) -> int:
    """What a token has on a cut now."""
    codec = spec.parallelism.codec
    return spec.model.hidden if codec is None else codec.rank


def _changes(job: WaitingJob, tries: Tries) -> Iterator[str]:
    """What the user could change in the job itself."""
    spec = job.spec
    parallelism = spec.parallelism
    if parallelism.stages_min is not None or parallelism.stages_max is not None:
        free = replace(parallelism, stages_min=None, stages_max=None)
        placement = tries.as_another(replace(job, spec=replace(spec, parallelism=free)))
        if placement is not None:
            yield f"with parallelism.stages: {placement.stages} (now {_bounds(spec)})"
    recomputes = spec.training.recompute is Recompute.FULL or spec.training.schedule.splits
    if not recomputes and spec.profile is None:
        less = replace(spec.training, recompute=Recompute.FULL)
        placement = tries.as_another(replace(job, spec=replace(spec, training=less)))
        if placement is not None:
            count = plural(placement.stages, "stage")
            yield f"with training.recompute: full, which takes less memory ({count})"
    if spec.placement != PlacementRule() or job.avoid_regions:
        anywhere = replace(job, spec=replace(spec, placement=PlacementRule()), avoid_regions=frozenset())
        placement = tries.as_another(anywhere)
        if placement is not None:
            yield f"if its placement rule and cool-down let it use {placement.describe()}"


def _widened(cluster: Cluster, cut: Cut) -> Cluster:
    """The cluster with so much more capacity where a cut runs."""
    more, ends = cut.bandwidth_bps, (cut.src, cut.dst)
    return replace(
        cluster,
        links={
            key: replace(link, capacity_bps=link.capacity_bps + more) if set(key) == set(ends) else link
            for key, link in cluster.links.items()
        },
        regions={
            name: replace(
                region, uplink_bps=region.uplink_bps + more, downlink_bps=region.downlink_bps + more
            )
            if name in ends
            else region
            for name, region in cluster.regions.items()
        },
    )


def _bounds(spec: JobSpec) -> str:
    least, most = spec.parallelism.stages_min or 1, spec.parallelism.stages_max or spec.model.layers
    return str(least) if least == most else f"{least}..{most}"
