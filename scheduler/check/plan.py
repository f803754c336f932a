"""Whether a plan may be carried out: judged from the snapshot alone, apart from every policy.

Nothing in this package is shared with the code that makes plans (policies, network, restart, options, pathfinder,
allocator): what those modules believe to be free, or to have to travel, is counted again. Only the description of the
world and the physics of a job (`profile`, `parameters.py`) are common ground.

What a plan gives away may be what stopping jobs still hold, or jobs that it stops itself: capacities are compared with
what is held once those have left, promises included.

Tolerance: amounts of bandwidth may pass a capacity by a relative 1e-9 (rounding of sums of floats), GPUs by
nothing; a latency may differ from half the round trip by a relative 1e-9.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from scheduler.check.capacity import bandwidth, gpus, quotas
from scheduler.check.place import beginning, chain, gang, memory, prediction, regions
from scheduler.check.rules import Begun, Rule, Violation
from scheduler.check.travel import layers_standing, transfers
from scheduler.job import Elasticity
from scheduler.plan import Hold, Move, Plan, Preempt, Reject, Start
from scheduler.snapshot import RunningJob, Snapshot, WaitingJob


def check_plan(snapshot: Snapshot, plan: Plan) -> tuple[Violation, ...]:
    """Everything that is wrong with a plan for this snapshot; empty if it may be applied."""
    waiting = {job.spec.job_id: job for job in snapshot.waiting}
    running = {job.spec.job_id: job for job in snapshot.running}
    found = list(decisions(snapshot, plan, waiting, running))
    begun = [*_started(plan, waiting), *_moved(snapshot, plan, running)]
    for each in begun:
        found += gang(each)
        found += regions(each)
        found += beginning(snapshot.cluster, each)
        found += chain(snapshot.cluster, each)
        found += memory(snapshot.cluster, each)
        found += transfers(snapshot.cluster, each)
        found += prediction(each)
    if begun:
        stopped = {each.job_id for each in plan.preemptions} | {each.job_id for each in plan.moves}
        leaving = [job for job in snapshot.running if job.stopping or job.spec.job_id in stopped]
        staying = [job for job in snapshot.running if not job.stopping and job.spec.job_id not in stopped]
        found += gpus(snapshot, staying, leaving, begun)
        found += bandwidth(snapshot, staying, begun)
        found += quotas(snapshot, staying, begun)
    return tuple(found)


def _started(plan: Plan, waiting: dict[str, WaitingJob]) -> Iterator[Begun]:
    for start in plan.starts:
        job = waiting.get(start.job_id)
        if job is not None:
            yield Begun(
                job.spec, start, job.state, job.stages, job.avoid_regions, job.require_regions, job.brought
            )


def _moved(snapshot: Snapshot, plan: Plan, running: dict[str, RunningJob]) -> Iterator[Begun]:
    for move in plan.moves:
        job = running.get(move.job_id)
        if job is not None:
            placement = job.allocation.placement
            restarting = job.ready_s is not None and snapshot.now_s < job.ready_s
            state = job.state if restarting else layers_standing(job.spec, placement)
            keeps = None if job.spec.elasticity is Elasticity.RESIZE else placement.stages
            brought = job.brought | {placement.segments[0].region}
            yield Begun(job.spec, move, state, keeps, job.avoid_regions, brought=brought)


def decisions(
    snapshot: Snapshot, plan: Plan, waiting: dict[str, WaitingJob], running: dict[str, RunningJob]
) -> Iterator[Violation]:
    if plan.snapshot_version != snapshot.version:
        yield Violation(
            "",
            Rule.VERSION,
            f"made for snapshot {plan.snapshot_version}, checked against {snapshot.version}",
        )
    decided = Counter(decision.job_id for decision in plan.decisions)
    for job_id in sorted(waiting.keys() | decided.keys()):
        if job_id in waiting and decided[job_id] != 1:
            yield Violation(job_id, Rule.ONCE_EACH, f"decided {decided[job_id]} times instead of once")
        elif job_id in running and decided[job_id] > 1:
            yield Violation(job_id, Rule.ONCE_EACH, f"changed {decided[job_id]} times in one plan")
        elif job_id not in waiting and job_id not in running:
            yield Violation(job_id, Rule.ONCE_EACH, "decided, but it neither waits nor runs in this snapshot")
    for decision in plan.decisions:
        job_id = decision.job_id
        match decision:
            case Hold(position=position, reasons=reasons):
                if position < 1 or not reasons:
                    yield Violation(job_id, Rule.REASONS, "held without a position and a reason")
            case Reject(reasons=reasons):
                if not reasons:
                    yield Violation(job_id, Rule.REASONS, "rejected without a reason")
            case Start(why=why) | Move(why=why) | Preempt(why=why):
                if not why:
                    yield Violation(job_id, Rule.REASONS, "started, moved or preempted without saying why")
        if isinstance(decision, Preempt | Move):
            yield from _stop(job_id, running.get(job_id))
        elif job_id in running:
            yield Violation(job_id, Rule.ONCE_EACH, "decided as if it waited, but it runs")


def _stop(job_id: str, job: RunningJob | None) -> Iterator[Violation]:
    if job is None:
        yield Violation(job_id, Rule.RUNNING, "stopped, but it does not run")
    elif job.stopping:
        yield Violation(job_id, Rule.RUNNING, "stopped, but it is stopping already")
    elif job.spec.elasticity is Elasticity.NONE:
        yield Violation(job_id, Rule.ELASTICITY, "stopped, but its elasticity is none")
