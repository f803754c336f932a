"""Jobs and clusters that the tests of the planner's ground work on."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from scheduler import presets
from scheduler.job import JobSpec, MeasuredProfile, ModelShape, Parallelism, Recompute, Schedule, Training

MakeSpec = Callable[..., JobSpec]


@pytest.fixture
def make_spec() -> MakeSpec:
    """`make_spec("llama-2-7b", tensor=2, …)`: a job with these, everything else at its default."""

    def make(
        model: str | ModelShape,
        *,
        micro_batch: int = 1,
        micro_batches: int = 16,
        bytes_per_element: int = 2,
        schedule: Schedule = Schedule.ONE_F_ONE_B,
        recompute: Recompute = Recompute.SELECTIVE,
        tensor: int = 1,
        data: float = 1,
        steps: int = 10,
        profile: MeasuredProfile | None = None,
    ) -> JobSpec:
        return JobSpec(
            job_id="job-1",
            name="job",
            project="project",
            submit_s=0.0,
            model=presets.model(model) if isinstance(model, str) else model,
            training=Training(steps, micro_batch, micro_batches, bytes_per_element, schedule, recompute),
            parallelism=Parallelism(tensor=tensor, data=data),
            profile=profile,
        )

    return make
