"""The what-if of pipeline schedules."""

from __future__ import annotations

from typing import Any, Literal, Self

from scheduler.pipeline.plan.advice import JobAdvice
from scheduler.pipeline.plan.comparison import Comparison as Compared
from scheduler.pipeline.plan.what_if import BILLED_STEPS, Figures, Row
from scheduler.profile import Workload
from service.api.schemas.base import Answer, example, flat

LINK = {"src": "eu-west", "dst": "eu-north", "sent_bytes": 524288.0}
USD = {"electricity": 0.11, "egress": 0.02, "rent": 0.0, "total": 0.13}
SCHEDULE = {
    "schedule": "slack-1f1b",
    "available": True,
    "comes_to": "slack-1f1b",
    "iteration_s": 0.84,
    "bubble_fraction": 0.21,
    "peak_bytes": [2.1e9, 1.9e9, 1.4e9],
    "fits": True,
    "links": [LINK, {**LINK, "src": "eu-north", "dst": "eu-west"}],
    "usd_per_1000_steps": USD,
    "runs": "asked",
    "note": None,
}
RANK = {"region": "eu-west", "gpu_type": "cpu-slot", "memory_bytes": 3.8e9}
CUT = {"src": "eu-west", "dst": "eu-north", "bandwidth_bps": 1e9, "latency_s": 0.012}
PICTURE = {"schedule": "auto", "svg": "<svg xmlns='http://www.w3.org/2000/svg'></svg>"}
BOUND = {
    "training": "paci",
    "step_size": 0.0079,
    "distance": 0.2,
    "noise": 0.039,
    "staleness": 0.00025,
    "total": 0.24,
    "reason": "paci: bound 0.24 = distance 0.2 + noise 0.039 + staleness 0.00025: no bubble, weights up to 1.88 block "
    "updates late",
}
ADVICE = {
    "training": "paci",
    "stages": 3,
    "micro_batches": 8000,
    "per_update": 8,
    "replicas": 1,
    "local_steps": 8,
    "bounds": [BOUND],
    "notes": ["Periodic averaging is left out: a rank's GPUs do not hold the whole model."],
}
COMPARISON = {
    "name": "gpt-small",
    "chain": "eu-west:2>eu-north:1",
    "why": "bace's choice now. 3 stages, the most it may have on this cluster (K*)",
    "stages": 3,
    "micro_batches": 8,
    "update_every": None,
    "keeps_full": False,
    "asked": "1f1b",
    "ranks": [RANK, RANK, {**RANK, "region": "eu-north"}],
    "cuts": [CUT],
    "schedules": [SCHEDULE],
    "unpriced_regions": [],
    "picture": None,
    "advice": ADVICE,
}


class SentBytes(Answer):
    """What an iteration sends in one direction between two regions."""

    model_config = example(LINK)

    src: str
    dst: str
    sent_bytes: float


class StepsUsd(Answer):
    """What 1,000 iterations cost at the prices of now: electricity where GPUs are owned, rent where they are rented."""

    model_config = example(USD)

    electricity: float
    egress: float
    rent: float
    total: float


class ComparedSchedule(Answer):
    """One schedule, timed on the job's stages, links and memory; or, in `note`, why it cannot be (not `available`)."""

    model_config = example(SCHEDULE)

    schedule: str
    available: bool
    comes_to: str | None
    """What `slack-1f1b` and `auto` are here."""
    iteration_s: float | None
    bubble_fraction: float | None
    """Share of the iteration in which the mean stage has nothing to compute."""
    peak_bytes: list[float]
    """Of one GPU of each rank, in pipeline order."""
    fits: bool | None
    """Whether every rank has that memory."""
    links: list[SentBytes]
    usd_per_1000_steps: StepsUsd | None
    runs: Literal["asked", "not"]
    """Whether this job can ask for it, by its name in `training.schedule`."""
    note: str | None

    @classmethod
    def of(cls, row: Row) -> Self:
        found = row.figures
        return cls.model_validate(
            {
                "schedule": row.schedule,
                "available": found is not None,
                **(_NOTHING if found is None else _figures(found)),
                "runs": row.runs.value,
                "note": row.note,
            }
        )


_NOTHING: dict[str, Any] = {
    "comes_to": None,
    "iteration_s": None,
    "bubble_fraction": None,
    "peak_bytes": (),
    "fits": None,
    "links": (),
    "usd_per_1000_steps": None,
}


def _figures(found: Figures) -> dict[str, Any]:
    return {
        "comes_to": found.comes_to,
        "iteration_s": found.iteration_s,
        "bubble_fraction": found.bubble_fraction,
        "peak_bytes": found.peak_bytes,
        "fits": found.fits,
        "links": found.links,
        f"usd_per_{BILLED_STEPS}_steps": found.usd,
    }


class Rank(Answer):
    """Where a rank stands, and the memory that it may fill of one of its GPUs."""

    model_config = example(RANK)

    region: str
    gpu_type: str
    memory_bytes: float


class ComparedCut(Answer):
    """A crossing of the chain, with the bandwidth in each of the two directions."""

    model_config = example(CUT)

    src: str
    dst: str
    bandwidth_bps: float
    latency_s: float
    """One way."""


class Timeline(Answer):
    """One iteration of a schedule, drawn."""

    model_config = example(PICTURE)

    schedule: str
    svg: str


class TrainingBound(Answer):
    """The terms of a bound on the mean squared gradient at the end, at the step size that is best for it."""

    model_config = example(BOUND)

    training: Literal["synchronous", "paci", "periodic-averaging"]
    step_size: float
    distance: float
    noise: float
    staleness: float
    total: float
    reason: str


class UpdateAdvice(Answer):
    """How the stages of a job might agree on their weights, by the bounds of each way. Nothing acts on it.

    Compared in the time of the `micro_batches` that the job declares for a pipeline, without bubbles, with an update
    every `per_update` of them. Periodic averaging is of `replicas` of the whole model in the place of the stages, which
    average after `local_steps` micro-batches of their own.
    """

    model_config = example(ADVICE)

    training: Literal["synchronous", "paci", "periodic-averaging"]
    """That of the lowest bound."""
    stages: int
    micro_batches: int
    per_update: int
    replicas: int
    local_steps: int
    bounds: list[TrainingBound]
    notes: list[str]

    @classmethod
    def of(cls, found: JobAdvice) -> Self:
        bounds = zip(found.advice.bounds.items(), found.advice.reasons, strict=True)
        return cls.model_validate(
            flat(found.budget)
            | {
                "training": found.advice.training.value,
                "bounds": [
                    flat(bound) | {"training": training.value, "total": bound.total, "reason": reason}
                    for (training, bound), reason in bounds
                ],
                "notes": found.notes,
            }
        )


class Comparison(Answer):
    """Every schedule of a job on one chain. Sends are non-blocking; an iteration ends with what its gradients need."""

    model_config = example(COMPARISON)

    name: str
    chain: str
    """Regions in pipeline order with their stages."""
    why: str
    """Why it is this chain."""
    stages: int
    micro_batches: int
    update_every: int | None
    """Micro-batches an update, where `run.updates` lets them come within an iteration; null: once, at its end."""
    keeps_full: bool
    """Whether iterations run one into the other: then `iteration_s` is what one takes in the long run."""
    asked: str
    """What the job asks for."""
    ranks: list[Rank]
    cuts: list[ComparedCut]
    schedules: list[ComparedSchedule]
    unpriced_regions: list[str]
    """Their electricity counts with 0."""
    picture: Timeline | None
    advice: UpdateAdvice | None
    """Of pipelines of several stages of the built-in worker."""

    @classmethod
    def of(cls, found: Compared) -> Self:
        setting = found.made.setting
        return cls.model_validate(
            {
                "name": found.spec.name,
                "chain": setting.placement.describe(),
                "why": found.why,
                "stages": setting.ranks,
                "micro_batches": setting.micro_batches,
                "update_every": setting.spec.training.update_every,
                "keeps_full": Workload.of(setting.spec).keeps_full,
                "asked": found.spec.training.schedule.value,
                "ranks": [
                    {"region": region, "gpu_type": gpu.name, "memory_bytes": memory_bytes}
                    for region, gpu, memory_bytes in zip(
                        setting.regions, setting.gpus, setting.memory_bytes, strict=True
                    )
                ],
                "cuts": setting.placement.cuts,
                "schedules": [ComparedSchedule.of(row) for row in found.made.rows],
                "unpriced_regions": found.made.unpriced_regions,
                "picture": found.picture,
                "advice": None if found.advice is None else UpdateAdvice.of(found.advice),
            }
        )
