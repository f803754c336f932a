"""The orders of what begins: a plan names placements by their windows, and jobs that can be told more get more.

An order is generated for the links that a placement was granted, in the memory that it has. It takes milliseconds, too
long for every place that a policy looks at; so it comes last, and changes neither where a job stands nor what it holds.
"""

from __future__ import annotations

from dataclasses import replace

from scheduler.cluster import Cluster
from scheduler.evaluate import as_planned, in_its_order
from scheduler.job import JobSpec
from scheduler.plan import Decision, Move, Plan, Start
from scheduler.policies.proposal import percent
from scheduler.snapshot import Snapshot
from scheduler.units import format_bytes


def in_order(snapshot: Snapshot, plan: Plan) -> Plan:
    """The plan with a generated order for each start and move of a job that asked for one, or asked for `auto` and is
    faster with it."""
    specs = {job.spec.job_id: job.spec for job in snapshot.waiting}
    specs |= {job.spec.job_id: job.spec for job in snapshot.running}
    decisions = tuple(_ordered(snapshot.cluster, specs, each) for each in plan.decisions)
    return replace(plan, decisions=decisions)


def _ordered(cluster: Cluster, specs: dict[str, JobSpec], decision: Decision) -> Decision:
    if not isinstance(decision, Start | Move):
        return decision
    spec = specs.get(decision.job_id)
    if spec is None:  # a policy that decides about a job that there is not: `check_plan` tells
        return decision
    made = in_its_order(spec, cluster, decision.placement)
    if made.placement == decision.placement:
        return decision
    before = as_planned(spec, cluster, decision.placement)
    faster = percent(before.timeline_s / made.timeline_s - 1)
    why = (
        f"{decision.why} Its order is generated for these links: {faster} {decision.placement.schedule.value}, "
        f"in {format_bytes(max(made.peak_bytes))} of a GPU at most."
    )
    return replace(decision, placement=made.placement, predicted_iteration_s=made.iteration_s, why=why)
