"""Makes a training job of a trace row, which knows only GPUs and seconds.

stages = the largest power of two ≤ min(16, gpus/8), at least 1; gpus_per_stage = gpus/stages rounded up, tensor =
min(8, gpus_per_stage), data = the rest (which may be a fraction); the model follows from the GPU count; micro_batch
1, micro_batches = 8 × these stages whatever K a policy chooses; bf16. steps = the traced duration over the iteration
time of the job alone at these stages in one region, at least 1.
"""

from __future__ import annotations

from dataclasses import replace

from scheduler.cluster import Cluster
from scheduler.job import Elasticity, JobSpec, ModelShape, Parallelism, Training
from scheduler.presets import model
from scheduler.replay.jobs import ReplayJob
from scheduler.replay.solo import solo_iteration_s, steps_of
from scheduler.replay.traces import TraceRow
from scheduler.spec.scenario_document import TrainingDefaultsSection

_MAX_STAGES = 16
_GPUS_PER_STAGE = 8
_MAX_TENSOR = 8
_MICRO_BATCHES_PER_STAGE = 8
_BYTES_BF16 = 2
_MODEL_BY_GPUS = (
    (2, "GPT-3-1.3B", 2048),
    (8, "Llama-2-7b", 4096),
    (32, "Llama-2-13b", 4096),
    (128, "Llama-3.1-70B", 4096),
)
_LARGEST = ("GPT-3-175B", 2048)


def traced_stages(gpus: int) -> int:
    """The stages that a job of so many GPUs names."""
    stages = 1
    while stages * 2 <= min(_MAX_STAGES, gpus / _GPUS_PER_STAGE):
        stages *= 2
    return stages


def traced_model(gpus: int) -> ModelShape:
    """The model that a job of so many GPUs trains, at the sequence length of the rule."""
    for most, name, seq_len in _MODEL_BY_GPUS:
        if gpus <= most:
            return replace(model(name), seq_len=seq_len)
    name, seq_len = _LARGEST
    return replace(model(name), seq_len=seq_len)


def traced_job(
    row: TraceRow,
    cluster: Cluster,
    training: TrainingDefaultsSection,
    elasticity: Elasticity,
    start_s: float,
    arrivals: float,
) -> ReplayJob:
    """The job of a row, declaring its actual steps. `arrivals` is how many times as dense the jobs come."""
    stages = traced_stages(row.gpus)
    gpus_per_stage = -(-row.gpus // stages)
    tensor = min(_MAX_TENSOR, gpus_per_stage)
    submit_s = row.submit_s / arrivals
    spec = JobSpec(
        job_id=row.job_id,
        name=row.job_id,
        project=row.tenant,
        submit_s=start_s + submit_s,
        model=traced_model(row.gpus),
        training=Training(
            steps=1,
            micro_batch=1,
            micro_batches=_MICRO_BATCHES_PER_STAGE * stages,
            bytes_per_element=_BYTES_BF16,
            schedule=training.schedule,
            recompute=training.recompute,
            splits_backward=True,  # as the built-in worker does
        ),
        parallelism=Parallelism(named_stages=stages, tensor=tensor, data=gpus_per_stage / tensor),
        elasticity=elasticity,
    )
    steps = steps_of(row.duration_s, solo_iteration_s(spec, cluster, stages))
    return ReplayJob(replace(spec, training=replace(spec.training, steps=steps)), submit_s, steps)
