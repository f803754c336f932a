"""The job file: one parser for the service and the replay.

`parse_job` answers a `JobDocument` or raises a `SpecError` that carries every issue as (JSON pointer, value, what
would be right). What is legal here but cannot be honoured yet is `scheduler.spec.support`'s to say.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from scheduler.job import (
    WEIGHTS_ALONE,
    DataSet,
    Elasticity,
    JobSpec,
    Parallelism,
    PlacementRule,
    Recompute,
    Schedule,
    Training,
    WeightVersions,
)
from scheduler.pipeline.plan.laid_out import LOOPED_REGIONS
from scheduler.spec.fields import Duration, Name, Section, Time, number, whole
from scheduler.spec.issues import FieldIssue, SpecError, with_line
from scheduler.spec.model import ModelSection, completed_model, model_issues
from scheduler.spec.ordered import MOST_ORDERED_MICRO_BATCHES, ordered_issues
from scheduler.spec.sections import (
    BYTES_PER_ELEMENT,
    CheckpointSection,
    DataSection,
    ParallelismSection,
    PlacementSection,
    ProfileSection,
    RunSection,
    StopSection,
    TrainingSection,
    UpdatesSection,
    plain,
)
from scheduler.spec.validation import issues_of
from scheduler.spec.yaml_text import read_yaml
from scheduler.units import format_time

DEFAULT_PROJECT = "default"
DEFAULT_LEARNING_RATE = 3e-4
_MAX_GRACE_S = 3600.0
_BUILTIN_OPTIONS = (
    "corpus",
    "optimizer",
    "learning_rate",
    "rate_schedule",
    "clip_norm",
    "updates",
    "ready_first",
    "seed",
)
_COMMAND_OPTIONS = ("image", "command", "env", "secrets")


class JobDocument(Section):
    """A job as its owner writes it, every value in SI; `completed()` fills what was left out."""

    name: Name
    project: Name = DEFAULT_PROJECT
    model: ModelSection
    training: TrainingSection
    parallelism: ParallelismSection = ParallelismSection()
    elasticity: Elasticity | None = None
    placement: PlacementSection = PlacementSection()
    data: Annotated[list[DataSection], Field(max_length=64)] = Field(default_factory=list)
    priority: Annotated[int, whole(0, 100)] = 50
    deadline: Time | None = None
    budget_usd: Annotated[float, number(above=0, at_most=1e12)] | None = None
    max_wait: Duration | None = None
    checkpoint: CheckpointSection = CheckpointSection()
    stop: StopSection = StopSection()
    run: RunSection = RunSection(builtin="gpt")
    profile: ProfileSection | None = None

    @property
    def is_builtin(self) -> bool:
        """Whether the built-in worker trains the job; else a command of the user's does."""
        return self.run.builtin is not None

    @property
    def effective_elasticity(self) -> Elasticity:
        """What may be done to the running job: as named; by default resize for the built-in worker, else none."""
        if self.elasticity is not None:
            return self.elasticity
        return Elasticity.RESIZE if self.is_builtin else Elasticity.NONE

    @property
    def learning_rate(self) -> float:
        """Of the built-in worker's optimizer."""
        return DEFAULT_LEARNING_RATE if self.run.learning_rate is None else self.run.learning_rate

    @property
    def optimizer(self) -> Literal["adamw", "muon"]:
        """Of the built-in worker."""
        return self.run.optimizer or "adamw"

    @property
    def seed(self) -> int:
        """Of the built-in worker's initial weights and order of the corpus."""
        return self.run.seed or 0

    def _versions(self) -> WeightVersions:
        if self.run.updates is None:
            return WEIGHTS_ALONE
        # Full recompute makes copies anew for every backward, and keeps none.
        own_copies = self.training.dtype == "bf16" and self.training.recompute is not Recompute.FULL
        return self.run.updates.versions(own_copies)

    def to_spec(self, job_id: str, project: str, submit_s: float) -> JobSpec:
        """The job as the planner takes it. `submit_s` is in epoch seconds."""
        low, high = self.parallelism.bounds()
        return JobSpec(
            job_id=job_id,
            name=self.name,
            project=project,
            submit_s=submit_s,
            model=self.model.shape(),
            training=Training(
                steps=self.training.steps,
                micro_batch=self.training.micro_batch,
                micro_batches=self.training.micro_batches,
                bytes_per_element=BYTES_PER_ELEMENT[self.training.dtype],
                schedule=self.training.schedule,
                recompute=self.training.recompute,
                splits_backward=self.is_builtin
                and self.training.micro_batches <= MOST_ORDERED_MICRO_BATCHES
                and self.run.updates is None,  # no update may come between the two parts of a backward
                versions=self._versions(),
                update_every=None if self.run.updates is None else self.run.updates.every,
                builtin_layers=self._has_builtin_layers(),
                ready_first=bool(self.run.ready_first),
            ),
            parallelism=Parallelism(
                stages_min=low,
                stages_max=high,
                named_stages=high,
                tensor=self.parallelism.tensor,
                data=plain(self.parallelism.data),
                codec=None if self.parallelism.codec is None else self.parallelism.codec.low_rank(),
            ),
            placement=PlacementRule(
                regions=tuple(self.placement.regions),
                exclude=tuple(self.placement.exclude),
                max_regions=self._max_regions(),
                home=self.placement.home,
            ),
            priority=self.priority,
            elasticity=self.effective_elasticity,
            max_wait_s=self.max_wait,
            deadline_s=self.deadline,
            budget_usd=self.budget_usd,
            data=tuple(DataSet(each.size, tuple(sorted(set(each.regions)))) for each in self.data),
            profile=None if self.profile is None else self.profile.measured(),
        )

    def _has_builtin_layers(self) -> bool:
        """Not where the built-in worker cannot train the model: such a job can be compared, but not run."""
        model = self.model.shape()
        trainable = self.parallelism.tensor == 1 and model.gated_mlp and model.experts == 1
        return self.is_builtin and trainable

    def _max_regions(self) -> int | None:
        most = self.placement.max_regions
        if not self.training.schedule.loops:
            return most
        return LOOPED_REGIONS if most is None else min(most, LOOPED_REGIONS)

    def completed(self) -> dict[str, Any]:
        """The job with every default filled, as plain JSON values; parses back to an equal job.

        Quantities are in SI (bytes, seconds), times in ISO 8601. What is optional and was not given stays away.
        """
        answer = self.model_dump(mode="json", exclude_none=True)
        answer["model"] = completed_model(self.model)
        answer["parallelism"]["data"] = plain(self.parallelism.data)
        answer["elasticity"] = self.effective_elasticity.value
        if self.deadline is not None:
            is_whole = self.deadline == int(self.deadline)
            answer["deadline"] = format_time(self.deadline) if is_whole else self.deadline
        if self.is_builtin:
            own = {"optimizer": self.optimizer, "learning_rate": self.learning_rate, "seed": self.seed}
            answer["run"] = {**answer["run"], **own}
        else:
            answer["run"] = {"env": {}, "secrets": {}, **answer["run"]}
        return answer


def parse_job(
    document: Mapping[str, Any] | str | bytes, source: str = "job", *, max_grace_s: float = _MAX_GRACE_S
) -> JobDocument:
    """Reads a job from a mapping (JSON) or YAML text.

    Raises SpecError with every issue found; where `document` is text, each has its line. `source` is what the
    messages call the text (a file's name); a server has a `max_grace_s` of its own.
    """
    lines: Mapping[str, int] = {}
    if isinstance(document, str | bytes):
        text = read_yaml(document, source)
        document, lines = text.value, text.lines
    if not isinstance(document, Mapping):
        raise SpecError([FieldIssue("", document, "a mapping with name, model, training …", 1)], source)
    try:
        job = JobDocument.model_validate(document)
        issues = _issues_of_the_whole(job, min(max_grace_s, _MAX_GRACE_S))
    except ValidationError as error:
        issues = issues_of(error, JobDocument)
    if issues:
        raise SpecError((with_line(issue, lines) for issue in issues), source)
    return job


def accepted_job(document: Mapping[str, Any]) -> JobDocument:
    """Reads a completed job that was accepted once: what only shows where fields are seen together is not asked again.

    A rule that came later must not stop a job that is queued or runs. Raises SpecError for a document of another shape.
    """
    try:
        return JobDocument.model_validate(document)
    except ValidationError as error:
        raise SpecError(issues_of(error, JobDocument), "job") from None


def _issues_of_the_whole(job: JobDocument, max_grace_s: float) -> list[FieldIssue]:
    """What only shows where fields are seen together."""
    issues = [*model_issues(job.model), *_run_issues(job.run)]
    if job.stop.grace > max_grace_s:
        issues.append(FieldIssue("/stop/grace", job.stop.grace, f"between 0 and {max_grace_s:g} seconds"))
    if not any(issue.pointer.startswith("/model") for issue in issues):
        layers = job.model.shape().layers
        _, most = job.parallelism.bounds()
        if most is not None and most > layers:
            expected = f"at most {layers} stages: the model has {layers} layers and they are whole"
            issues.append(FieldIssue("/parallelism/stages", job.parallelism.stages, expected))
    home = job.placement.home
    if home is not None and not job.placement.allows(home):
        expected = "a region that placement.regions allows and placement.exclude does not name"
        issues.append(FieldIssue("/placement/home", home, expected))
    issues += _codec_issues(job)
    issues += ordered_issues(job)
    if job.is_builtin:
        issues += _learning_issues(job)
    gpus = job.parallelism.tensor * job.parallelism.data
    if round(gpus) < 1 or not math.isclose(gpus, round(gpus), rel_tol=1e-9):
        expected = "tensor × data a whole number of GPUs, at least one GPU"
        issues.append(FieldIssue("/parallelism/data", job.parallelism.data, expected))
    if job.profile is not None and set(job.profile.forward_s) != set(job.profile.backward_s):
        expected = f"the GPU types of forward_s: {', '.join(sorted(job.profile.forward_s))}"
        issues.append(FieldIssue("/profile/backward_s", sorted(job.profile.backward_s), expected))
    return issues


def _codec_issues(job: JobDocument) -> list[FieldIssue]:
    if job.parallelism.codec is None:
        return []
    if not job.is_builtin:
        expected = (
            "nothing: it is for builtin: gpt; a command compresses by itself, and profile.activation_bytes tells "
            "what it sends"
        )
        return [FieldIssue("/parallelism/codec", "mapl", expected)]
    rank = job.parallelism.codec.mapl.rank
    if model_issues(job.model) or rank <= job.model.shape().hidden:
        return []
    expected = f"at most hidden = {job.model.shape().hidden}, what a token has without a codec"
    return [FieldIssue("/parallelism/codec/mapl/rank", rank, expected)]


def _learning_issues(job: JobDocument) -> list[FieldIssue]:
    run, micro_batches = job.run, job.training.micro_batches
    issues = []
    if run.rate_schedule is not None and run.rate_schedule.warmup_steps > job.training.steps:
        expected = f"at most training.steps = {job.training.steps}"
        issues.append(FieldIssue("/run/rate_schedule/warmup_steps", run.rate_schedule.warmup_steps, expected))
    if run.updates is None:
        return issues
    if run.clip_norm is not None:
        expected = "nothing: with updates no step has the gradients of all stages, whose norm it would be"
        issues.append(FieldIssue("/run/clip_norm", run.clip_norm, expected))
    if micro_batches % run.updates.every:
        expected = f"a number that training.micro_batches = {micro_batches} can be divided by"
        issues.append(FieldIssue("/run/updates/every", run.updates.every, expected))
    if run.updates.error_feedback and run.updates.rule != "2bw":
        expected = f"nothing: it corrects the one step that 2bw is late, not {run.updates.rule}"
        issues.append(FieldIssue("/run/updates/error_feedback", run.updates.error_feedback, expected))
    return [*issues, *_in_flight_issues(job, run.updates)]


def _in_flight_issues(job: JobDocument, updates: UpdatesSection) -> list[FieldIssue]:
    """Where even the fewest stages that the job names have more micro-batches in flight than the rule allows."""
    micro_batches, (low, _) = job.training.micro_batches, job.parallelism.bounds()
    in_flight = micro_batches if job.training.schedule is Schedule.GPIPE else min(low or 1, micro_batches)
    most = updates.most_in_flight
    if most is None or in_flight <= most:
        return []
    expected = (
        f"at least {in_flight - 1}: the first stage has {in_flight} micro-batches in flight, "
        f"and {updates.rule} keeps two versions of the weights"
    )
    return [FieldIssue("/run/updates/every", updates.every, expected)]


def _run_issues(run: RunSection) -> list[FieldIssue]:
    if run.builtin is None and run.command is None:
        return [FieldIssue("/run", None, "builtin: gpt, or a command")]
    wrong = _COMMAND_OPTIONS if run.builtin is not None else _BUILTIN_OPTIONS
    other = "a job with a command" if run.builtin is not None else "builtin: gpt"
    return [
        FieldIssue(
            f"/run/{name}",
            "***" if name == "secrets" else run.model_dump(exclude_unset=True)[name],
            f"nothing: it is for {other}",
        )
        for name in wrong
        if getattr(run, name) is not None
    ]
