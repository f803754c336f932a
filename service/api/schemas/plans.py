"""A dry run: what would be decided about a job now."""

from __future__ import annotations

from typing import Any, Literal, Self

from scheduler.plan import Hold, Start
from service import dry_runs, placements
from service.api.schemas.base import Answer, example
from service.api.schemas.jobs import ENERGY, SPEC, SPENT, Energy, Spent
from service.api.schemas.placements import CHAIN, PLACEMENT, ChainPart, Placement
from service.api.schemas.reasons import Reason
from service.job_views import chain_of

DISPLACED = {
    "job_id": "job-01kb9wxxxxxxxxxxxxxxxxxxxx",
    "effect": "moved",
    "from_chain": "eu-west:4",
    "to_chain": "us-east:4",
    "why": "4 stages of at most 6 over us-east:4: the least of its time and of its bill",
}
PLAN = {
    "decision": "start",
    "at_s": 1764460795.1,
    "snapshot_version": 42,
    "policy": "bace",
    "position": None,
    "queue_length": 1,
    "reasons": [],
    "at_once": True,
    "displaces": [],
    "why": "eu-west is cheapest now; eu-north is joined by the widest link",
    "chain": CHAIN,
    "placement": PLACEMENT,
    "stages": 3,
    "gpus": 3,
    "iteration_s": 0.84,
    "bubble_fraction": 0.21,
    "usd_per_hour": {"electricity": 0.06, "egress": 0.0, "rent": 0.0, "total": 0.06},
    "duration_s": 100.8,
    "finish_at_s": 1764460895.9,
    "cost_usd": SPENT,
    "energy_kwh": ENERGY,
    "unpriced_regions": [],
    "not_planned_by": [],
    "job": SPEC,
}


class Displaced(Answer):
    """A job that would be changed because of this one. `delayed`: it would start in this round otherwise."""

    model_config = example(DISPLACED)

    job_id: str
    """That of another project is not told."""
    effect: Literal["moved", "preempted", "delayed"]
    from_chain: str | None
    """Regions in pipeline order with their stages."""
    to_chain: str | None
    why: str


class DryRun(Answer):
    """`start`: it would start, as told: now (`at_once`), or as soon as jobs that stop for it have left. `hold`: it
    would wait, for `reasons`. `reject`: it never could run.

    Cost and finish hold if nothing else happens, at the prices known now (the last known one carried forward);
    regions without a known price are named, and count with 0.
    """

    model_config = example(PLAN)

    decision: Literal["start", "hold", "reject"]
    at_s: float
    snapshot_version: int
    policy: str
    position: int | None
    """In the queue, if it would wait."""
    queue_length: int
    reasons: list[Reason]
    at_once: bool
    """Whether what it needs is free now."""
    displaces: list[Displaced]
    """What its start would do to other jobs."""
    why: str | None
    chain: list[ChainPart]
    placement: Placement | None
    stages: int | None
    gpus: int | None
    iteration_s: float | None
    bubble_fraction: float | None
    """Share of the iteration in which the mean stage has nothing to compute."""
    usd_per_hour: Spent | None
    duration_s: float | None
    finish_at_s: float | None
    cost_usd: Spent | None
    energy_kwh: Energy | None
    unpriced_regions: list[str]
    not_planned_by: list[str]
    """Which of `deadline`, `budget_usd` and `max_wait` the job gives and the policy does not plan by."""
    job: dict[str, Any]
    """The job as the server completes it."""

    @classmethod
    def of(cls, run: dry_runs.DryRun) -> Self:
        decision, estimate = run.decision, run.estimate
        started = decision.placement if isinstance(decision, Start) else None
        placement = None if started is None else placements.to_document(started)
        return cls.model_validate(
            {
                "decision": type(decision).__name__.lower(),
                "at_s": run.at_s,
                "snapshot_version": run.snapshot_version,
                "policy": run.policy,
                "position": decision.position if isinstance(decision, Hold) else None,
                "queue_length": run.queue_length,
                "reasons": run.reasons,
                "at_once": run.at_once,
                "displaces": run.displaces,
                "why": run.why,
                "chain": () if placement is None else chain_of(placement),
                "placement": placement,
                "stages": started and started.stages,
                "gpus": started and started.gpus,
                "iteration_s": estimate and estimate.evaluation.iteration_s,
                "bubble_fraction": estimate and estimate.bubble_fraction,
                "usd_per_hour": estimate and estimate.usd_per_hour,
                "duration_s": estimate and estimate.duration_s,
                "finish_at_s": estimate and run.at_s + estimate.duration_s,
                "cost_usd": estimate and estimate.cost_usd,
                "energy_kwh": estimate and estimate.energy_kwh,
                "unpriced_regions": estimate.unpriced_regions if estimate else (),
                "not_planned_by": run.not_planned_by,
                "job": run.job,
            }
        )
