"""The `jobs` of a scenario: a trace, a list of jobs, or a generator."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Protocol, TypeVar

from pydantic import BaseModel

from scheduler.spec.fields import Duration, Section, whole
from scheduler.spec.issues import FieldIssue, SpecError, pointer_of
from scheduler.spec.job import JobDocument, parse_job
from scheduler.spec.model import model_issues
from scheduler.spec.scenario_document import (
    MAX_JOBS,
    GeneratedJobsSection,
    TraceJobsSection,
    TrainingDefaultsSection,
)
from scheduler.spec.support import unknown_regions

_Section = TypeVar("_Section", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class ListedJob:
    """A job of a list: submitted so many seconds after the start; its actual steps are those it declares unless
    the scenario says otherwise."""

    document: JobDocument
    submit_s: float
    actual_steps: int


@dataclass(frozen=True, slots=True)
class TraceFile:
    """A trace, at its resolved path."""

    path: Path
    section: TraceJobsSection


JobSource = TraceFile | GeneratedJobsSection | tuple[ListedJob, ...]


class IssueSink(Protocol):
    """Where issues go; the scenario's reader."""

    issues: list[FieldIssue]

    def issue(self, at: tuple[str | int, ...], value: object, expected: str) -> None: ...

    def section(self, kind: type[_Section], value: object, at: tuple[str | int, ...]) -> _Section | None: ...

    def resolve(self, relative: str) -> Path: ...


def read_jobs(
    value: object, training: TrainingDefaultsSection, regions: Collection[str], sink: IssueSink
) -> JobSource | None:
    """Reads the section. What is wrong goes to `sink`."""
    if isinstance(value, list):
        return _listed(value, training, regions, sink)
    if isinstance(value, dict) and "trace" in value:
        section = sink.section(TraceJobsSection, value, ("jobs",))
        return None if section is None else _trace_file(section, sink)
    if isinstance(value, dict) and "generator" in value:
        generated = sink.section(GeneratedJobsSection, value, ("jobs",))
        if generated is not None:
            _check_generator(generated, sink)
        return generated
    sink.issue(("jobs",), value, "a list of jobs, or a mapping with trace or generator")
    return None


def _trace_file(section: TraceJobsSection, sink: IssueSink) -> TraceFile | None:
    """Its rows are read when the replay begins; that it is there shows now."""
    path = sink.resolve(section.trace)
    if not path.is_file():
        sink.issue(("jobs", "trace"), section.trace, f"a trace file that is there ({path} is no file)")
        return None
    return TraceFile(path, section)


class _Submission(Section):
    """What a job of a list has beside its job file."""

    submit: Duration = 0.0
    actual_steps: Annotated[int, whole(1, 1_000_000_000)] | None = None


def _listed(
    values: list[Any], training: TrainingDefaultsSection, regions: Collection[str], sink: IssueSink
) -> tuple[ListedJob, ...] | None:
    if not 1 <= len(values) <= MAX_JOBS:
        sink.issue(("jobs",), f"{len(values)} jobs", f"1 to {MAX_JOBS} jobs")
        return None
    jobs = []
    names: set[str] = set()
    for index, value in enumerate(values):
        job = _listed_job(value, index, training, regions, sink)
        if job is None:
            continue
        if job.document.name in names:
            sink.issue(
                ("jobs", index, "name"), job.document.name, "every name once: it is the job_id of the replay"
            )
        names.add(job.document.name)
        jobs.append(job)
    return tuple(jobs)


def _listed_job(
    value: object, index: int, training: TrainingDefaultsSection, regions: Collection[str], sink: IssueSink
) -> ListedJob | None:
    at = ("jobs", index)
    if not isinstance(value, dict):
        sink.issue(at, value, "a job: a mapping with name, submit, model, training …")
        return None
    own = {key: value[key] for key in ("submit", "actual_steps") if key in value}
    submission = sink.section(_Submission, own, at)
    document = {key: entry for key, entry in value.items() if key not in own}
    if isinstance(document.get("training"), Mapping):
        document["training"] = {**training.model_dump(mode="json"), **document["training"]}
    try:
        job = parse_job(document)
    except SpecError as error:
        prefix = pointer_of(at)
        sink.issues.extend(replace(issue, pointer=prefix + issue.pointer) for issue in error.issues)
        return None
    refused = unknown_regions(job, regions)
    sink.issues.extend(replace(issue, pointer=pointer_of(at) + issue.pointer) for issue in refused)
    if submission is None or refused:
        return None
    return ListedJob(job, submission.submit, submission.actual_steps or job.training.steps)


def _check_generator(section: GeneratedJobsSection, sink: IssueSink) -> None:
    at: tuple[str | int, ...] = ("jobs", "generator")
    generator = section.generator
    if generator.arrivals == "poisson" and not generator.mean_gap:
        sink.issue(
            (*at, "mean_gap"), generator.mean_gap, "a duration above 0 such as 10m: arrivals are poisson"
        )
    if generator.arrivals == "all" and generator.mean_gap is not None:
        sink.issue((*at, "mean_gap"), generator.mean_gap, "nothing: all jobs arrive at the start")
    if not generator.duration.median > 0:
        sink.issue((*at, "duration", "median"), generator.duration.median, "a duration above 0 such as 2h")
    for index, model in enumerate(generator.models):
        issues = model_issues(model)
        for issue in issues:
            name = issue.pointer.removeprefix("/model/")
            sink.issue((*at, "models", index, name), issue.value, issue.expected)
        if issues:
            continue
        layers = model.shape().layers
        for number, size in enumerate(generator.sizes):
            if size.stages > layers:
                expected = f"at most {layers} stages: models.{index} has {layers} layers"
                sink.issue((*at, "sizes", number, "stages"), size.stages, expected)
