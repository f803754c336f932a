"""Quotas of tenants, around every policy alike: none of them has to know that there are any.

    1. narrow   a job that cannot fit what its tenant may still hold is not shown to the policy; one that can is bounded
                to so many stages
    2. ask      the policy decides about the rest
    3. refuse   decisions are counted in the policy's own order against what is left; those beyond it are taken out of
                the question, bounded to what is left where that is enough for them, and the policy is asked again, so
                that nobody waits for what they were to have

A plan that comes out of it keeps every quota (`scheduler/check` judges that by itself). Money is counted as what has
been spent this month and what running and starting jobs will cost until it ends; running jobs are never stopped for it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from scheduler.job import Elasticity, JobSpec
from scheduler.network import Topology
from scheduler.options import Demands
from scheduler.placement import Placement
from scheduler.plan import Decision, Hold, Move, Plan, Reject, Start
from scheduler.policies.quota_reasons import no_gpus, no_money, too_small
from scheduler.reasons import Reason, ReasonCode
from scheduler.snapshot import Quota, RunningJob, Snapshot, WaitingJob
from scheduler.spending import expected_usd

ASKED_AGAIN = 2
"""How often a policy is asked anew about what is left. From then on tenants that go beyond it get what they were given
and nothing else; what would still be beyond a quota then just waits."""

Ask = Callable[[Snapshot], Plan]


@dataclass(slots=True)
class _Left:
    """What the tenants with a quota may still take. `math.inf` would hide a missing quota: None is none."""

    gpus: dict[str, int] = field(default_factory=dict)
    usd: dict[str, float] = field(default_factory=dict)


@dataclass(slots=True)
class _Question:
    """What the policy is asked, and the jobs that it is not shown, with their reasons."""

    world: Snapshot
    held: dict[str, Reason] = field(default_factory=dict)
    bounded: dict[str, Reason] = field(default_factory=dict)
    """Jobs that are shown with fewer stages than they might have, and why."""


def decide_within(snapshot: Snapshot, ask: Ask) -> Plan:
    """The plan of a policy, within the quotas of the snapshot."""
    return asked_within(snapshot, ask)[0]


def asked_within(snapshot: Snapshot, ask: Ask) -> tuple[Plan, Snapshot]:
    """The same, and the world as the policy saw it when it answered."""
    if not snapshot.quotas:
        return ask(snapshot), snapshot
    question = _narrowed(snapshot)
    plan = ask(question.world)
    refused, left = _refused(snapshot, plan)
    for attempt in range(ASKED_AGAIN + len(snapshot.quotas)):
        # Starts can be left out of a plan; a move cannot, others may count on what it leaves.
        is_late = attempt >= ASKED_AGAIN
        if not refused or (is_late and not any(move.job_id in refused for move in plan.moves)):
            break
        is_last = attempt >= ASKED_AGAIN - 1
        question = _without(snapshot, question, plan, refused, left, last=is_last)
        plan = ask(question.world)
        refused, left = _refused(snapshot, plan)
    return _told(snapshot, question, plan, refused), question.world


def least_gpus(snapshot: Snapshot, job: WaitingJob) -> int | None:
    """The fewest GPUs that the job can run on; None where no GPU type of the cluster has the memory."""
    demand = Demands(Topology.of(snapshot.cluster)).of(job)
    floors = [floor for _, floor in demand.floor_by_type if floor is not None]
    return min(floors) * demand.gpus_per_stage if floors else None


def _narrowed(snapshot: Snapshot) -> _Question:
    question = _Question(snapshot)
    fixed = _gpus_of(
        (job.spec.project, job.allocation.placement)
        for job in snapshot.running
        if not job.stopping and job.spec.elasticity is Elasticity.NONE
    ) | _promised(snapshot)
    left = _left(snapshot, Plan(snapshot.version, ()))
    shown: list[WaitingJob] = []
    for job in snapshot.waiting:
        quota = snapshot.quotas.get(job.spec.project)
        if quota is None:
            shown.append(job)
            continue
        project, job_id = job.spec.project, job.spec.job_id
        if project in left.usd and left.usd[project] <= 0:
            question.held[job_id] = no_money(project, quota, left.usd[project], None)
        elif quota.gpus is None:
            shown.append(job)
        else:
            room = quota.gpus - fixed.get(project, 0)
            _show(question, shown, job, quota.gpus, room, least_gpus(snapshot, job))
    question.world = replace(snapshot, waiting=tuple(shown), running=_still(snapshot, left))
    return question


def _show(
    question: _Question, shown: list[WaitingJob], job: WaitingJob, gpus: int, room: int, least: int | None
) -> None:
    job_id, project = job.spec.job_id, job.spec.project
    if least is None:
        shown.append(job)  # what it lacks is memory: the policy says so
    elif least > gpus:
        question.held[job_id] = too_small(project, gpus, least)
    elif least > room:
        question.held[job_id] = no_gpus(project, gpus, room, least)
    else:
        bounded = _bounded(job, room)
        if bounded.spec is not job.spec:
            question.bounded[job_id] = no_gpus(project, gpus, room, least)
        shown.append(bounded)


def _still(snapshot: Snapshot, left: _Left) -> tuple[RunningJob, ...]:
    """Running jobs, those of tenants without any money left for more than they have bounded to that."""
    return tuple(
        _bounded_running(job) if left.usd.get(job.spec.project, 1.0) <= 0 else job for job in snapshot.running
    )


def _refused(snapshot: Snapshot, plan: Plan) -> tuple[dict[str, Reason], _Left]:
    """The decisions beyond a quota, by job, in the plan's order; and what is left once the others are done."""
    waiting = {job.spec.job_id: job for job in snapshot.waiting}
    running = {job.spec.job_id: job for job in snapshot.running}
    left = _left(snapshot, plan)
    refused: dict[str, Reason] = {}
    given: list[Start | Move] = [*plan.moves, *plan.starts]
    # What shrinks makes room for what grows.
    for decision in sorted(given, key=lambda each: _grows(each, running) > 0):
        job: WaitingJob | RunningJob = (
            running[decision.job_id] if isinstance(decision, Move) else waiting[decision.job_id]
        )
        project, grows = job.spec.project, _grows(decision, running)
        quota = snapshot.quotas.get(project)
        if quota is None:
            continue
        if quota.gpus is not None and 0 < grows > left.gpus[project]:
            refused[decision.job_id] = no_gpus(project, quota.gpus, left.gpus[project], grows)
            continue
        usd = _added_usd(snapshot, decision, job, quota) if project in left.usd and grows > 0 else 0.0
        if usd > 0 and usd > left.usd[project]:
            refused[decision.job_id] = no_money(project, quota, left.usd[project], usd)
            continue
        if quota.gpus is not None:
            left.gpus[project] -= grows
        if project in left.usd:
            left.usd[project] -= max(0.0, usd)
    return refused, left


def _grows(decision: Start | Move, running: dict[str, RunningJob]) -> int:
    held = running[decision.job_id].allocation.placement.gpus if isinstance(decision, Move) else 0
    return decision.placement.gpus - held


def _added_usd(
    snapshot: Snapshot, decision: Start | Move, job: WaitingJob | RunningJob, quota: Quota
) -> float:
    """What the month will cost more than without the decision."""
    until_s, steps = quota.month_ends_s, job.remaining_steps
    new = expected_usd(snapshot, job.spec, decision.placement, steps, until_s)
    if isinstance(job, WaitingJob):
        return new
    return new - expected_usd(snapshot, job.spec, job.allocation.placement, steps, until_s)


def _left(snapshot: Snapshot, plan: Plan) -> _Left:
    """What the tenants may still take, besides what runs on or is promised. A job that the plan moves counts as it
    stands, one that it preempts not at all."""
    leaving = {each.job_id for each in plan.preemptions}
    staying = [job for job in snapshot.running if not job.stopping and job.spec.job_id not in leaving]
    placed: list[tuple[JobSpec, Placement, int]] = [
        (job.spec, job.allocation.placement, job.remaining_steps) for job in staying
    ]
    placed += [(each.spec, each.placement, each.remaining_steps) for each in snapshot.promised]
    held = _gpus_of((spec.project, placement) for spec, placement, _ in placed)
    left = _Left()
    for project, quota in snapshot.quotas.items():
        if quota.gpus is not None:
            left.gpus[project] = quota.gpus - held.get(project, 0)
        if quota.usd_per_month is not None:
            coming = sum(
                expected_usd(snapshot, spec, placement, steps, quota.month_ends_s)
                for spec, placement, steps in placed
                if spec.project == project
            )
            left.usd[project] = quota.usd_per_month - quota.spent_usd - coming
    return left


def _without(
    snapshot: Snapshot,
    before: _Question,
    plan: Plan,
    refused: dict[str, Reason],
    left: _Left,
    *,
    last: bool,
) -> _Question:
    """The question without what was refused. The `last` time tenants that were refused anything get nothing else than
    what they were given."""
    given = {each.job_id: each.placement.stages for each in plan.starts if each.job_id not in refused}
    over = {job.spec.project for job in _jobs_of(snapshot) if job.spec.job_id in refused}
    question = _Question(before.world, dict(before.held), dict(before.bounded))
    shown: list[WaitingJob] = []
    for job in before.world.waiting:
        job_id, project = job.spec.job_id, job.spec.project
        if job_id in refused:
            _bound_or_hold(snapshot, question, shown, job, refused[job_id], left)
        elif project in over and job_id in given:
            question.bounded.setdefault(job_id, _first_of(snapshot, refused, project))
            shown.append(_bounded(job, given[job_id] * job.spec.parallelism.gpus_per_stage))
        elif project in over and last:
            question.held[job_id] = _first_of(snapshot, refused, project)
        else:
            shown.append(job)
    still = tuple(
        _bounded_running(job) if job.spec.job_id in refused or (last and job.spec.project in over) else job
        for job in before.world.running
    )
    question.world = replace(before.world, waiting=tuple(shown), running=still)
    return question


def _bound_or_hold(
    snapshot: Snapshot,
    question: _Question,
    shown: list[WaitingJob],
    job: WaitingJob,
    reason: Reason,
    left: _Left,
) -> None:
    """A job for which fewer GPUs are enough may have those that are left; another waits."""
    job_id, project = job.spec.job_id, job.spec.project
    least = least_gpus(snapshot, job) or 0
    room = left.gpus.get(project, 0)
    if reason.code is not ReasonCode.QUOTA_GPUS or not 0 < least <= room:
        question.held[job_id] = reason
        question.bounded.pop(job_id, None)
        return
    bounded = _bounded(job, room)
    question.bounded[job_id] = reason
    shown.append(bounded)
    left.gpus[project] -= (bounded.spec.parallelism.stages_max or 0) * job.spec.parallelism.gpus_per_stage


def _told(snapshot: Snapshot, question: _Question, plan: Plan, refused: dict[str, Reason]) -> Plan:
    """The plan with a word for everybody: who was not shown to the policy, or would still get too much, waits."""
    decisions: list[Decision] = []
    waits: list[tuple[str, tuple[Reason, ...]]] = []
    for decision in plan.decisions:
        if decision.job_id in refused:
            if isinstance(decision, Start):
                waits.append((decision.job_id, (refused[decision.job_id],)))
        elif isinstance(decision, Reject) and decision.job_id in question.bounded:
            # It was judged by what its quota leaves, not by what it asked for: that is no reason to refuse it for good.
            waits.append((decision.job_id, (question.bounded[decision.job_id], *decision.reasons)))
        else:
            decisions.append(decision)
    waits += [
        (job.spec.job_id, (question.held[job.spec.job_id],))
        for job in snapshot.waiting
        if job.spec.job_id in question.held
    ]
    position = max((each.position for each in decisions if isinstance(each, Hold)), default=0)
    holds = [Hold(job_id, position + n, reasons) for n, (job_id, reasons) in enumerate(waits, start=1)]
    return Plan(plan.snapshot_version, (*decisions, *holds))


def _bounded(job: WaitingJob, gpus: int) -> WaitingJob:
    """The job with no more stages than these GPUs hold."""
    size = job.spec.parallelism.gpus_per_stage
    return replace(job, spec=_with_most(job.spec, gpus // size))


def _bounded_running(job: RunningJob) -> RunningJob:
    """The job with no more stages than it has."""
    return replace(job, spec=_with_most(job.spec, job.allocation.placement.stages))


def _with_most(spec: JobSpec, stages: int) -> JobSpec:
    parallelism = spec.parallelism
    if stages >= min(parallelism.stages_max or spec.model.layers, spec.model.layers):
        return spec
    return replace(spec, parallelism=replace(parallelism, stages_max=stages))


def _promised(snapshot: Snapshot) -> dict[str, int]:
    return _gpus_of((each.spec.project, each.placement) for each in snapshot.promised)


def _gpus_of(placed: Iterable[tuple[str, Placement]]) -> dict[str, int]:
    held: defaultdict[str, int] = defaultdict(int)
    for project, placement in placed:
        held[project] += placement.gpus
    return dict(held)


def _first_of(snapshot: Snapshot, refused: dict[str, Reason], project: str) -> Reason:
    """Why something of that project was refused."""
    ids = (job.spec.job_id for job in _jobs_of(snapshot) if job.spec.project == project)
    return next(refused[job_id] for job_id in ids if job_id in refused)


def _jobs_of(snapshot: Snapshot) -> list[WaitingJob | RunningJob]:
    return [*snapshot.waiting, *snapshot.running]
