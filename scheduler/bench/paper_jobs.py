"""The jobs of the paper's kind, drawn: what they train, on what, and when they come (see `paper.py`)."""

from __future__ import annotations

from dataclasses import replace
from typing import Final, Literal

import numpy as np

from scheduler.bench.worlds import Conduct, Split
from scheduler.cluster import GpuType
from scheduler.errors import InvalidValueError
from scheduler.job import JobSpec, Parallelism, Recompute, Training
from scheduler.presets import gpu, model
from scheduler.profile import k_min
from scheduler.replay.jobs import ReplayJob

Arrivals = Literal["all", "poisson"]
ARRIVALS: Final[tuple[Arrivals, ...]] = ("all", "poisson")

START_S: Final = 1_767_225_600.0  # 2026-01-01T00:00:00Z; with static prices any moment is as good
GPU: Final = replace(gpu("A6000"), idle_w=gpu("A6000").power_w)

_JOBS: Final = 2
"""What sets their random numbers apart from those of the cluster of a draw."""

_TENSOR: Final = {
    "Qwen2.5-14B": 2,
    "Qwen2.5-32B": 2,
    "Gemma-3-27B": 2,
    "Falcon-40B": 2,
    "Llama-3.1-70B": 4,
    "FLM-101B": 4,
}
_TENANTS: Final = 4
_TOKENS: Final = (2e7, 5e8)
_SEQ_LEN: Final = 2048
_MICRO_BATCH: Final = 4
_MICRO_BATCHES: Final = 64
_MEAN_GAP_S: Final = 1800.0


def drawn_jobs(
    split: Split, draw: int, count: int, arrivals: Arrivals, conduct: Conduct
) -> tuple[ReplayJob, ...]:
    """The jobs in order of submission. Job i depends on the draw and i alone: a longer list begins with the shorter."""
    jobs = []
    submit_s = 0.0
    for index in range(count):
        random = np.random.default_rng([_JOBS, split.entropy, draw, index])
        gap_s = float(random.exponential(_MEAN_GAP_S))
        shape = str(random.choice(list(_TENSOR)))
        tokens = float(np.exp(random.uniform(*np.log(_TOKENS))))
        tenant = int(random.integers(_TENANTS))
        if arrivals == "poisson" and index > 0:
            submit_s += gap_s
        steps = max(1, round(tokens / (_MICRO_BATCHES * _MICRO_BATCH * _SEQ_LEN)))
        spec = _spec(f"job-{index:02d}", shape, f"tenant-{tenant}", submit_s, steps, conduct)
        jobs.append(conduct.declared(ReplayJob(spec, submit_s, steps), seed=1000 * split.entropy + draw))
    return tuple(jobs)


def _spec(name: str, shape: str, tenant: str, submit_s: float, steps: int, conduct: Conduct) -> JobSpec:
    spec = JobSpec(
        job_id=name,
        name=name,
        project=tenant,
        submit_s=START_S + submit_s,
        model=replace(model(shape), seq_len=_SEQ_LEN),
        training=Training(
            steps=steps,
            micro_batch=_MICRO_BATCH,
            micro_batches=_MICRO_BATCHES,
            schedule=conduct.schedule,
            recompute=Recompute.FULL,
        ),
        parallelism=Parallelism(tensor=_TENSOR[shape]),
        elasticity=conduct.elasticity,
    )
    stages = _named_stages(spec, GPU)
    return replace(spec, parallelism=replace(spec.parallelism, named_stages=stages))


def _named_stages(spec: JobSpec, kind: GpuType) -> int:
    """The fewest stages that fit, rounded up to a power of two."""
    least = k_min(spec, kind)
    if least is None:
        raise InvalidValueError("model", spec.model.name, f"a model that fits on {kind.name} GPUs")
    return int(1 << (least - 1).bit_length())
