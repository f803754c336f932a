"""What one more job does to the others: the difference of two plans of the same moment."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from scheduler.plan import Decision, Move, Plan, Preempt, Start
from scheduler.snapshot import Snapshot


class Effect(StrEnum):
    """What happens to a job because of another."""

    MOVED = "moved"
    PREEMPTED = "preempted"
    DELAYED = "delayed"  # it would start in this round otherwise


@dataclass(frozen=True, slots=True)
class Displaced:
    """A job that would be changed, from where to where (None: it waits, or did), and the plan's own words."""

    job_id: str
    effect: Effect
    from_chain: str | None
    to_chain: str | None
    why: str


def displaced(snapshot: Snapshot, with_it: Plan, without_it: Plan) -> tuple[Displaced, ...]:
    """Jobs of the snapshot for which the plan with the newcomer decides worse, or at all; by id.

    What would be changed alike without it is none of its doing.
    """
    stands = {job.spec.job_id: job.allocation.placement.describe() for job in snapshot.running}
    before = {decision.job_id: decision for decision in without_it.decisions}
    after = {decision.job_id: decision for decision in with_it.decisions}
    found = []
    for job_id in sorted(stands.keys() | before.keys()):
        then, now = before.get(job_id), after.get(job_id)
        match now:
            case Move() if not _same_place(then, now):
                chain = now.placement.describe()
                found.append(Displaced(job_id, Effect.MOVED, stands.get(job_id), chain, now.why))
            case Preempt() if not isinstance(then, Preempt):
                found.append(Displaced(job_id, Effect.PREEMPTED, stands.get(job_id), None, now.why))
            case _ if isinstance(then, Start) and not isinstance(now, Start):
                why = "it would start in this round otherwise"
                found.append(Displaced(job_id, Effect.DELAYED, None, None, why))
    return tuple(found)


def _same_place(then: Decision | None, now: Move) -> bool:
    return isinstance(then, Move) and then.placement == now.placement
