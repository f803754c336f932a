"""Jobs, and what they report."""

from __future__ import annotations

from typing import Any, Self

from service.api.schemas.base import Answer, example, shown
from service.api.schemas.placements import (
    ALLOCATION,
    CHAIN,
    PLACEMENT,
    Allocation,
    ChainPart,
    Placement,
    Promised,
)
from service.api.schemas.reasons import REASON, Reason
from service.explanations import JobExplanation
from service.job_views import AllocationView, JobView, SpentView

SPEC = {
    "name": "gpt-small",
    "project": "nlp",
    "model": {
        "layers": 6,
        "hidden": 128,
        "heads": 4,
        "kv_heads": 4,
        "head_dim": 32,
        "ffn": 384,
        "gated_mlp": True,
        "vocab": 256,
        "seq_len": 128,
    },
    "training": {"steps": 120, "micro_batch": 4, "micro_batches": 8, "dtype": "fp32"},
    "parallelism": {"stages": 3},
    "run": {"builtin": "gpt"},
}
ENERGY = {"total": 0.0131, "by_region": {"eu-west": 0.0088, "eu-north": 0.0043}}
SPENT = {"electricity": 0.0024, "egress": 0.0, "rent": 0.0, "total": 0.0024}
COST = {
    **SPENT,
    "by_region": {"eu-west": {"electricity": 0.0024, "egress": 0.0, "rent": 0.0, "total": 0.0024}},
    "unpriced_entries": 0,
}
JOB = {
    "job_id": "job-01kb9wzx7c2f4h6j8k0m2n4p6q",
    "name": "gpt-small",
    "project": "nlp",
    "submitted_by": "token-01kb9wy00000000000000000",
    "state": "running",
    "priority": 50,
    "submitted_at_s": 1764460795.1,
    "first_started_at_s": 1764460804.2,
    "finished_at_s": None,
    "queue_position": None,
    "reasons": [],
    "stop_cause": None,
    "cancel_requested": False,
    "generation": 1,
    "retries": 0,
    "preemptions": 0,
    "moves": 0,
    "promised": None,
    "declared_steps": 120,
    "reported_steps": 37,
    "checkpoint_step": 30,
    "checkpoint_uri": "file:///var/lib/bacepipe/checkpoints/nlp/job-01kb9wzx7c2f4h6j8k0m2n4p6q",
    "chain": CHAIN,
    "placement": PLACEMENT,
    "why": "eu-west is cheapest now; eu-north is joined by the widest link",
    "predicted_iteration_s": 0.84,
    "measured_iteration_s": 0.88,
    "tokens_per_s": 4654.5,
    "mfu": None,
    "first_loss": 5.55,
    "last_loss": 3.91,
    "last_grad_norm": 0.84,
    "drift": None,
    "drift_bound": None,
    "rolled_back": None,
    "queueing_s": 9.1,
    "jct_s": None,
    "energy_kwh": ENERGY,
    "cost_usd": COST,
    "allocations": [ALLOCATION],
    "spec": SPEC,
    "version": 7,
}
STEP = {
    "step": 37,
    "loss": 3.91,
    "step_time_s": 0.88,
    "tokens": 4096,
    "generation": 1,
    "at_s": 1764460841.0,
    "grad_norm": 0.84,
    "compute_s": 0.61,
    "send_s": 0.02,
    "drift": None,
    "drift_bound": None,
    "rolled_back": None,
}
LOG_LINE = {
    "seq": 1201,
    "stage": 1,
    "key": "alloc-01kb9x0d3v4m8q2r5t7w9y1z3b/1",
    "line": 14,
    "text": "step 37 loss 3.910",
    "at_s": 1764460841.0,
}
VERDICT = {"region": "us-east", "free_gpus": 2, "stages": 2, "reasons": [REASON]}
EXPLANATION = {
    "job_id": "job-01kb9wzx7c2f4h6j8k0m2n4p6q",
    "state": "queued",
    "position": 3,
    "queue_length": 17,
    "reasons": [REASON],
    "regions": [VERDICT],
    "would_start": ["stages ≤ 6", "31 Gbps instead of 40 Gbps between eu-west and eu-north"],
    "blocking_jobs": ["job-01kb9wxxxxxxxxxxxxxxxxxxxx"],
}


class Energy(Answer):
    """Metered so far, kWh after PUE."""

    model_config = example(ENERGY)

    total: float
    by_region: dict[str, float]


class Spent(Answer):
    """USD by kind. `total` is electricity + egress + rent as they were billed."""

    model_config = example(SPENT)

    electricity: float
    egress: float
    rent: float
    total: float


class Cost(Spent):
    """Billed so far, from the ledger."""

    model_config = example(COST)

    by_region: dict[str, Spent]
    unpriced_entries: int
    """Ledger entries for which no price was known: they count with 0 USD."""


class Job(Answer):
    """A job: what was asked for (`spec`, completed) and what has become of it."""

    model_config = example(JOB)

    job_id: str
    name: str
    project: str
    submitted_by: str
    state: str
    priority: int
    submitted_at_s: float
    first_started_at_s: float | None
    finished_at_s: float | None
    queue_position: int | None
    """From 1, while it waits and a planning round has seen it."""
    reasons: list[Reason]
    """Why it waits, failed or was rejected."""
    stop_cause: str | None
    cancel_requested: bool
    generation: int
    """Of its last allocation; 0 before the first."""
    retries: int
    preemptions: int
    """How often a plan made it wait again; no retry is spent on it."""
    moves: int
    """How often a plan gave it other stages or regions."""
    promised: Promised | None
    """Where it goes on; null unless that is decided and not free yet."""
    declared_steps: int
    reported_steps: int
    checkpoint_step: int
    checkpoint_uri: str | None
    chain: list[ChainPart]
    """Of the last allocation; empty before the first."""
    placement: Placement | None
    why: str | None
    predicted_iteration_s: float | None
    measured_iteration_s: float | None
    """Median of the last 50 steps of the generation, without its first."""
    tokens_per_s: float | None
    """Over all data replicas, by the measured iteration."""
    mfu: float | None
    """Model FLOPs utilisation, a fraction of the peak of its GPUs; null where a peak is not known, as of CPU slots."""
    first_loss: float | None
    last_loss: float | None
    last_grad_norm: float | None
    """Of all stages together, before clipping; null where stages update within a step."""
    drift: int | None
    """With `updates`: the most updates of any stage between the forward and the backward of a micro-batch, in the last
    generation. At most `drift_bound`."""
    drift_bound: int | None
    rolled_back: int | None
    """With `updates`: how many of them stages took back in the last generation."""
    queueing_s: float | None
    """First start − submission; up to now while it waits for its first start."""
    jct_s: float | None
    """Finish − submission."""
    energy_kwh: Energy
    cost_usd: Cost
    allocations: list[Allocation]
    spec: dict[str, Any]
    version: int

    @classmethod
    def of(cls, view: JobView) -> Self:
        return cls.model_validate(document_of(view))


def document_of(view: JobView) -> dict[str, Any]:
    """The fields of a `Job` as they are answered. A list of jobs is written of these: most of its time would go into
    looking through them once more."""
    allocations = [_allocation(allocation) for allocation in view.allocations]
    last = allocations[-1] if allocations else _NO_ALLOCATION
    found = {
        **shown(Job, view.job),
        **shown(Job, view),
        "reasons": [Reason.model_validate(reason) for reason in view.job.reasons],
        "promised": None if view.promised is None else Promised.of(view.promised),
        "tokens_per_s": view.tokens_per_s,
        "mfu": view.mfu,
        "preemptions": view.preemptions,
        "moves": view.moves,
        "energy_kwh": {"total": view.energy_kwh.total, "by_region": view.energy_kwh.by_region},
        "cost_usd": {
            **_spent(view.cost_usd),
            "by_region": {region: _spent(spent) for region, spent in view.cost_usd.by_region.items()},
            "unpriced_entries": view.cost_usd.unpriced_entries,
        },
        "allocations": allocations,
        **{name: last[name] for name in _NO_ALLOCATION},
    }
    return {name: found[name] for name in Job.model_fields}


_NO_ALLOCATION: dict[str, Any] = {"chain": (), "placement": None, "why": None, "predicted_iteration_s": None}


def _allocation(view: AllocationView) -> dict[str, Any]:
    """The fields of an `Allocation`."""
    found = {
        **shown(Allocation, view.allocation),
        **shown(Allocation, view),
        "placement": Placement.model_validate(view.allocation.placement),
    }
    return {name: found[name] for name in Allocation.model_fields}


def _spent(view: SpentView) -> dict[str, float]:
    """The fields of a `Spent`."""
    return {
        "electricity": view.electricity,
        "egress": view.egress,
        "rent": view.rent,
        "total": view.total,
    }


class Step(Answer):
    """One training step (iteration) as its last stage reported it.

    `loss` and `grad_norm` (of all stages, before clipping) are null where they are no numbers. Of `step_time_s` that
    stage computed `compute_s`, and spent `send_s` at its end until what it had sent was gone; the rest it waited for
    others. Where stages update within a step, `drift` is the most updates of any of them between the forward and the
    backward of a micro-batch, at most `drift_bound`, and `rolled_back` what they took back since the generation began.
    What a worker did not tell is null.
    """

    model_config = example(STEP)

    step: int
    loss: float | None
    step_time_s: float
    tokens: int
    generation: int
    at_s: float
    grad_norm: float | None
    compute_s: float | None
    send_s: float | None
    drift: int | None
    drift_bound: int | None
    rolled_back: int | None


class LogLine(Answer):
    """A line that a process of the job wrote; `line` counts within that process, `seq` over all."""

    model_config = example(LOG_LINE)

    seq: int
    stage: int
    key: str
    line: int
    text: str
    at_s: float


class RegionVerdict(Answer):
    """What stands between a job and a region; no reason: it could take part now."""

    model_config = example(VERDICT)

    region: str
    free_gpus: int
    """Of types that the job can use."""
    stages: int
    """Whole stages of the job that these hold."""
    reasons: list[Reason]


class Explanation(Answer):
    """Why a job waits, and what would let it start. Of a job that does not wait: its state and stored reasons."""

    model_config = example(EXPLANATION)

    job_id: str
    state: str
    position: int | None
    """From 1 among those that stay waiting; null if it would start in this round, or does not wait."""
    queue_length: int | None
    reasons: list[Reason]
    regions: list[RegionVerdict]
    would_start: list[str]
    """Each has been tried: with that one change the policy finds a place for it."""
    blocking_jobs: list[str]
    """Ids of the caller's own running jobs whose ends together make room for it."""

    @classmethod
    def of(cls, explanation: JobExplanation) -> Self:
        job, now = explanation.job, explanation.now
        return cls.model_validate(
            {
                "job_id": job.job_id,
                "state": job.state,
                "position": (now.position or None) if now else None,
                "queue_length": now.queue_length if now else None,
                "reasons": now.reasons if now else job.reasons,
                "regions": now.regions if now else (),
                "would_start": now.would_start if now else (),
                "blocking_jobs": now.blocking_jobs if now else (),
            }
        )
