"""Draws jobs from a seed. Job i depends on (seed, i) alone, so a longer list begins with the shorter one."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from scheduler.cluster import Cluster
from scheduler.job import Elasticity, JobSpec, ModelShape, Parallelism, Training
from scheduler.replay.jobs import ReplayJob
from scheduler.replay.solo import solo_iteration_s, steps_of
from scheduler.spec.scenario_document import GeneratorSection, SizeSection, TrainingDefaultsSection

_BYTES_BF16 = 2
_TENANT = "generated"


def generated_jobs(
    generator: GeneratorSection,
    cluster: Cluster,
    training: TrainingDefaultsSection,
    elasticity: Elasticity,
    start_s: float,
    arrivals: float,
) -> list[ReplayJob]:
    """The jobs, each declaring its actual steps, in order of submission."""
    shapes = [section.shape() for section in generator.models]
    model_odds = _odds([section.weight for section in generator.models])
    size_odds = _odds([section.weight for section in generator.sizes])
    jobs = []
    submit_s = 0.0
    for index in range(generator.count):
        draw = np.random.default_rng([generator.seed, index])
        gap, shape_at, size_at, deviate = (
            float(draw.exponential()),
            int(np.searchsorted(model_odds, draw.random(), side="right")),
            int(np.searchsorted(size_odds, draw.random(), side="right")),
            float(draw.standard_normal()),
        )
        if generator.arrivals == "poisson" and index > 0:
            submit_s += gap * (generator.mean_gap or 0.0) / arrivals
        duration_s = generator.duration.median * math.exp(generator.duration.sigma * deviate)
        spec = _spec(
            f"job-{index:04d}", shapes[shape_at], generator.sizes[size_at], generator, training, elasticity
        )
        steps = steps_of(duration_s, solo_iteration_s(spec, cluster, generator.sizes[size_at].stages))
        spec = replace(spec, submit_s=start_s + submit_s, training=replace(spec.training, steps=steps))
        jobs.append(ReplayJob(spec, submit_s, steps))
    return jobs


def _spec(
    name: str,
    shape: ModelShape,
    size: SizeSection,
    generator: GeneratorSection,
    training: TrainingDefaultsSection,
    elasticity: Elasticity,
) -> JobSpec:
    return JobSpec(
        job_id=name,
        name=name,
        project=_TENANT,
        submit_s=0.0,
        model=shape,
        training=Training(
            steps=1,
            micro_batch=generator.micro_batch,
            micro_batches=generator.micro_batches_per_stage * size.stages,
            bytes_per_element=_BYTES_BF16,
            schedule=training.schedule,
            recompute=training.recompute,
            splits_backward=True,  # as the built-in worker does
        ),
        parallelism=Parallelism(named_stages=size.stages, tensor=size.tensor, data=size.data),
        elasticity=elasticity,
    )


def _odds(weights: list[float]) -> list[float]:
    """Cumulative odds, the last one exactly 1."""
    total = math.fsum(weights)
    cumulative = [math.fsum(weights[: index + 1]) / total for index in range(len(weights))]
    return [*cumulative[:-1], 1.0]
