"""A placement and the allocations that were made of them."""

from __future__ import annotations

from typing import Self

from pydantic import Field

from service.api.schemas.base import Answer, example, flat
from service.job_views import AllocationView, PromiseView

SEGMENT = {"region": "eu-west", "gpu_type": "cpu-slot", "stages": 2, "gpus_per_stage": 1}
CUT = {"src": "eu-west", "dst": "eu-north", "bandwidth_bps": 1e9, "latency_s": 0.012}
CHAIN = [
    {"region": "eu-west", "gpu_type": "cpu-slot", "stages": 2, "gpus": 2},
    {"region": "eu-north", "gpu_type": "cpu-slot", "stages": 1, "gpus": 1},
]
PLACEMENT = {
    "segments": [SEGMENT, {**SEGMENT, "region": "eu-north", "stages": 1}],
    "cuts": [CUT],
    "schedule": "1f1b",
    "window": [3, 2, 1],
    "lag": [],
    "order": [],
}
ALLOCATION = {
    "allocation_id": "alloc-01kb9x0d3v4m8q2r5t7w9y1z3b",
    "job_id": "job-01kb9wzx7c2f4h6j8k0m2n4p6q",
    "job_name": "gpt-small",
    "project": "nlp",
    "generation": 1,
    "state": "running",
    "placement": PLACEMENT,
    "chain": CHAIN,
    "gpus": 3,
    "why": "eu-west is cheapest now; eu-north is joined by the widest link",
    "predicted_iteration_s": 0.84,
    "first_step": 1,
    "created_at_s": 1764460800.0,
    "running_at_s": 1764460804.2,
    "ended_at_s": None,
    "stop_cause": None,
    "stop_why": None,
}
PROMISED = {
    "kind": "move",
    "generation": 2,
    "placement": PLACEMENT,
    "chain": CHAIN,
    "gpus": 3,
    "why": "3 stages of at most 6 over eu-west:2>eu-north:1: the least of its time and of its bill",
    "predicted_iteration_s": 0.84,
    "made_at_s": 1764460900.0,
}


class Segment(Answer):
    """Consecutive stages in one pool."""

    model_config = example(SEGMENT)

    region: str
    gpu_type: str
    stages: int
    gpus_per_stage: int


class Cut(Answer):
    """A stage boundary that crosses regions; the bandwidth is granted in each of the two directions."""

    model_config = example(CUT)

    src: str
    dst: str
    bandwidth_bps: float
    latency_s: float
    """One way."""


class Placement(Answer):
    """The pipeline in order; `cuts` lie between the segments of different regions."""

    model_config = example(PLACEMENT)

    segments: list[Segment]
    cuts: list[Cut]
    schedule: str
    window: list[int]
    """Micro-batches in flight at most, for each stage; where two parts stand on every stage, for each part in order."""
    lag: list[int] = Field(default_factory=list)
    """Where backwards are split: for each stage how many micro-batches the gradients of its weights run behind."""
    order: list[str] = Field(default_factory=list)
    """What each stage does in an iteration where neither `window` nor `lag` says it, a letter a computation: F forward,
    B backward, I and W its two parts, the gradient of the input and of the weights; f, b, i, w of its second part. What
    repeats stands once: `F[FB]63B`."""


class ChainPart(Answer):
    """A region of the chain, in pipeline order."""

    model_config = example(CHAIN[0])

    region: str
    gpu_type: str
    stages: int
    gpus: int


class Allocation(Answer):
    """A committed placement of one generation of a job: what it holds from `created_at_s` to `ended_at_s`."""

    model_config = example(ALLOCATION)

    allocation_id: str
    job_id: str
    job_name: str
    project: str
    generation: int
    state: str
    placement: Placement
    chain: list[ChainPart]
    gpus: int
    why: str
    predicted_iteration_s: float
    first_step: int
    created_at_s: float
    running_at_s: float | None
    ended_at_s: float | None
    stop_cause: str | None
    """Why it was told to stop (`preempted` and `moved` by a plan, `drained`, `cancelled`, or a failure); null where
    the job came to its own end."""
    stop_why: str | None
    """The same in a sentence, where a plan stopped it."""

    @classmethod
    def of(cls, view: AllocationView) -> Self:
        return cls.model_validate(
            flat(view.allocation, job_name=view.job_name, chain=view.chain, gpus=view.gpus)
        )


class Promised(Answer):
    """Where a job goes on as soon as jobs that are stopping have left what it needs: nobody else is given it.

    `start`: it waited. `move`: it ran elsewhere, and has been stopped for this.
    """

    model_config = example(PROMISED)

    kind: str
    generation: int
    """The one that will begin there."""
    placement: Placement
    chain: list[ChainPart]
    gpus: int
    why: str
    predicted_iteration_s: float
    made_at_s: float

    @classmethod
    def of(cls, view: PromiseView) -> Self:
        return cls.model_validate(flat(view.promise, chain=view.chain, gpus=view.gpus))
