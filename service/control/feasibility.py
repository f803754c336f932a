"""Which jobs no cluster of these nodes could ever run, also while some of the nodes take no work."""

from __future__ import annotations

from scheduler.plan import Plan, Reject
from scheduler.policies import PolicyConfig, decide
from scheduler.snapshot import Snapshot


def never_fitting(snapshot: Snapshot, plan: Plan, config: PolicyConfig) -> frozenset[str]:
    """Of the jobs that a plan rejects, those that the policy would reject with all nodes there and nothing running."""
    rejected = _rejected(plan)
    if not rejected or snapshot.whole is None:
        return rejected
    alone = Snapshot(
        version=snapshot.version,
        now_s=snapshot.now_s,
        cluster=snapshot.whole,
        electricity=snapshot.electricity,
        waiting=tuple(job for job in snapshot.waiting if job.spec.job_id in rejected),
    )
    return _rejected(decide(alone, config))


def _rejected(plan: Plan) -> frozenset[str]:
    return frozenset(decision.job_id for decision in plan.decisions if isinstance(decision, Reject))
