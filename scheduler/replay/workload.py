"""The jobs of a scenario, whatever they come from: all have the published layers, whatever would run them."""

from __future__ import annotations

from dataclasses import replace

from scheduler.job import JobSpec
from scheduler.replay.generator import generated_jobs
from scheduler.replay.jobs import ReplayJob, with_estimate
from scheduler.replay.trace_rule import traced_job
from scheduler.replay.traces import read_trace
from scheduler.spec.scenario import Scenario
from scheduler.spec.scenario_document import GeneratedJobsSection
from scheduler.spec.scenario_jobs import TraceFile


def jobs_of(scenario: Scenario) -> tuple[ReplayJob, ...]:
    """The jobs in order of submission (by job id where two come at once).

    Raises SpecError where a trace has a bad row.
    """
    source = scenario.jobs
    arrivals = scenario.scale.arrivals
    if isinstance(source, tuple):
        jobs = []
        for listed in source:
            submit_s = listed.submit_s / arrivals
            name, project = listed.document.name, listed.document.project
            spec = listed.document.to_spec(name, project, scenario.start_s + submit_s)
            jobs.append(ReplayJob(_with_published_layers(spec), submit_s, listed.actual_steps))
        return _in_order(jobs)
    section = source if isinstance(source, GeneratedJobsSection) else source.section
    if isinstance(source, TraceFile):
        rows = read_trace(source.path)
        jobs = [
            traced_job(
                row, scenario.cluster, scenario.training, section.elasticity, scenario.start_s, arrivals
            )
            for row in rows
        ]
    else:
        jobs = generated_jobs(
            source.generator,
            scenario.cluster,
            scenario.training,
            section.elasticity,
            scenario.start_s,
            arrivals,
        )
    estimate = section.estimate
    return _in_order([with_estimate(job, estimate.sigma, estimate.seed, estimate.bias) for job in jobs])


def _with_published_layers(spec: JobSpec) -> JobSpec:
    return replace(spec, training=replace(spec.training, builtin_layers=False))


def _in_order(jobs: list[ReplayJob]) -> tuple[ReplayJob, ...]:
    return tuple(sorted(jobs, key=lambda job: (job.submit_s, job.spec.job_id)))
