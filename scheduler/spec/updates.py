"""How often a job changes its weights."""

from __future__ import annotations

from scheduler.spec.job import JobDocument


def micro_batches_an_update(job: JobDocument) -> int | None:
    """Of each pipeline: those of a step, unless its `updates` say otherwise. None for a command: nobody knows."""
    if not job.is_builtin:
        return None
    return job.training.micro_batches if job.run.updates is None else job.run.updates.every
