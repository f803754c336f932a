"""Which jobs no cluster of these nodes could ever run, also while some of the nodes take no work."""

from __future__ import annotations

from collections.abc import Collection

from scheduler.cluster import Cluster
from scheduler.plan import Plan, Reject
from scheduler.policies import PolicyConfig, decide
from scheduler.snapshot import Snapshot


def rejected_by(plan: Plan) -> frozenset[str]:
    """The jobs that a plan rejects."""
    return frozenset(decision.job_id for decision in plan.decisions if isinstance(decision, Reject))


def never_fitting(
    snapshot: Snapshot, rejected: Collection[str], whole: Cluster, config: PolicyConfig
) -> frozenset[str]:
    """Of these waiting jobs, those that the policy would reject on the whole cluster with nothing running as well."""
    alone = Snapshot(
        version=snapshot.version,
        now_s=snapshot.now_s,
        cluster=whole,
        electricity=snapshot.electricity,
        waiting=tuple(job for job in snapshot.waiting if job.spec.job_id in rejected),
    )
    return rejected_by(decide(alone, config))
