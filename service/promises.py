"""Which promised placements begin, which must wait, and which can be kept no longer.

A promise is judged as a start of its own by `check_plan`, on the world as it is now (what stopping jobs hold is held)
and on the world as it will be once they have left. Promises have their rights in order: what an earlier one needs is
not there for a later one, even before the earlier one begins. So none waits longer than for the jobs that were
stopping when it was made. Of one plan, starts come before moves.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from scheduler.check import Rule, check_plan
from scheduler.plan import Move, Plan, Start
from scheduler.snapshot import Promise, Snapshot, WaitingJob

_PLACE = frozenset(
    {
        Rule.GPUS,
        Rule.QUOTA,
        Rule.LINK,
        Rule.UPLINK,
        Rule.DOWNLINK,
        Rule.CHAIN,
        Rule.REGION_ALLOWED,
        Rule.MEMORY,
        Rule.ORDER,
    }
)
"""The rules that tell whether a placement can stand; what was decided with it (transfers, stages) stays decided."""


@dataclass(frozen=True, slots=True)
class Pending:
    """A promise, when it was made, and what is known of its job: whether it waits, and who reaches its checkpoint."""

    promise: Promise
    made_at_s: float
    waits: bool
    require_regions: frozenset[str] = frozenset()

    @property
    def job_id(self) -> str:
        return self.promise.spec.job_id


@dataclass(frozen=True, slots=True)
class Broken:
    """A promise that cannot be kept, and why not."""

    job_id: str
    detail: str


@dataclass(frozen=True, slots=True)
class Standing:
    """What there is to do about the promises of a snapshot: jobs that begin, in order, and promises to take back."""

    beginning: tuple[str, ...]
    broken: tuple[Broken, ...]


def stand(snapshot: Snapshot, pending: Sequence[Pending], max_age_s: float) -> Standing:
    """Judge promises, the earliest right first."""
    present = as_it_is(snapshot)
    kept: list[Promise] = []
    beginning, broken = [], []
    for each in pending:
        lacks = _too_old(each, snapshot.now_s, max_age_s) or _lacks(snapshot, each, kept)
        if lacks is not None:
            broken.append(Broken(each.job_id, lacks))
            continue
        if each.waits and _lacks(present, each, kept) is None:
            beginning.append(each.job_id)
        kept.append(each.promise)
    return Standing(tuple(beginning), tuple(broken))


def starting_at_once(snapshot: Snapshot, plan: Plan) -> frozenset[str]:
    """The jobs that a plan starts on what is free now; what its other starts need has to be left first."""
    starts = frozenset(start.job_id for start in plan.starts)
    if not (plan.moves or plan.preemptions or any(job.stopping for job in snapshot.running)):
        return starts  # nobody leaves: what the plan gives is there
    present = as_it_is(snapshot)
    waiting = {job.spec.job_id: job for job in snapshot.waiting}
    running = {job.spec.job_id: job for job in snapshot.running}
    taken = list(snapshot.promised)
    at_once = set()
    decisions: tuple[Start | Move, ...] = (*plan.starts, *plan.moves)
    for decision in decisions:
        job = waiting.get(decision.job_id) or running[decision.job_id]
        promise = Promise(job.spec, decision.placement, job.remaining_steps, 0, decision.transfers)
        begins = Pending(promise, snapshot.now_s, waits=isinstance(decision, Start))
        if begins.waits and _lacks(present, begins, taken) is None:
            at_once.add(decision.job_id)
        taken.append(promise)
    return frozenset(at_once)


def as_it_is(snapshot: Snapshot) -> Snapshot:
    """The snapshot with whatever stopping jobs still hold counted as held."""
    return replace(snapshot, running=tuple(replace(job, stopping=False) for job in snapshot.running))


def _too_old(each: Pending, now_s: float, max_age_s: float) -> str | None:
    if now_s - each.made_at_s <= max_age_s:
        return None
    return f"what it needs has not been left within {max_age_s:g} s"


def _lacks(world: Snapshot, each: Pending, before: Collection[Promise]) -> str | None:
    """What is missing for a promise to begin in this world behind these others; None if nothing is."""
    promise = each.promise
    job = WaitingJob(
        promise.spec, promise.remaining_steps, promise.generation, require_regions=each.require_regions
    )
    start = Start(each.job_id, promise.placement, 1.0, "promised", promise.transfers)
    alone = replace(world, waiting=(job,), promised=tuple(before))
    violations = check_plan(alone, Plan(world.version, (start,)))
    return next((found.detail for found in violations if found.rule in _PLACE), None)
