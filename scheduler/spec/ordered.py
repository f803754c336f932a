"""What a job with a schedule that its workers are told in an order may not be as well."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from scheduler.errors import InvalidValueError
from scheduler.job import Recompute, Schedule
from scheduler.pipeline.plan.laid_out import require_possible
from scheduler.spec.issues import FieldIssue
from scheduler.spec.model import model_issues

if TYPE_CHECKING:
    from scheduler.spec.job import JobDocument

MOST_ORDERED_MICRO_BATCHES: Final = 1024
"""An order is told action by action in one environment variable."""


def ordered_issues(job: JobDocument) -> Iterator[FieldIssue]:
    """The fields that a job with such a schedule cannot have, each with what it would have to be."""
    schedule = job.training.schedule
    if not schedule.is_ordered:
        return
    if not job.is_builtin:
        expected = "1f1b, gpipe, slack-1f1b or auto: a command is told a window, only builtin: gpt an order"
        yield FieldIssue("/training/schedule", schedule.value, expected)
        return
    yield from _learning_issues(job, schedule)
    if schedule.splits and job.training.recompute is Recompute.FULL:
        expected = (
            f"none or selective: {schedule.value} splits backwards, and to leave gradients of weights for later takes "
            "many times what full recompute keeps"
        )
        yield FieldIssue("/training/recompute", job.training.recompute.value, expected)
    if job.training.micro_batches > MOST_ORDERED_MICRO_BATCHES:
        expected = (
            f"at most {MOST_ORDERED_MICRO_BATCHES}: {schedule.value} is told to workers action by action"
        )
        yield FieldIssue("/training/micro_batches", job.training.micro_batches, expected)
    elif not model_issues(job.model):
        yield from _stage_issues(job, schedule)


def _learning_issues(job: JobDocument, schedule: Schedule) -> Iterator[FieldIssue]:
    if job.run.updates is not None:
        expected = (
            f"nothing: no update may come within {schedule.value}; 1f1b, gpipe, slack-1f1b and auto have them"
        )
        yield FieldIssue("/run/updates", job.run.updates.rule, expected)
    if schedule.parts == 1:
        return
    if job.parallelism.codec is not None:
        expected = f"nothing: {schedule.value} passes every stage twice, and a codec's ends are on neighbours in a line"
        yield FieldIssue("/parallelism/codec", "mapl", expected)
    if job.run.ready_first:
        expected = f"nothing: the memory of {schedule.value} is that of its order, which ready_first leaves"
        yield FieldIssue("/run/ready_first", True, expected)


def _stage_issues(job: JobDocument, schedule: Schedule) -> Iterator[FieldIssue]:
    """Where no number of stages within the bounds has an order: what stands against the fewest of them."""
    layers, (low, high) = job.model.shape().layers, job.parallelism.bounds()
    least, most = low or 1, min(high or layers, layers)
    refused: InvalidValueError | None = None
    for stages in range(least, most + 1):
        try:
            require_possible(schedule, layers, stages, job.training.micro_batches)
        except InvalidValueError as error:
            refused = refused or error
        else:
            return
    if refused is not None:
        pointer = "/parallelism/stages" if refused.field == "model.layers" else "/training/micro_batches"
        value = job.parallelism.stages if refused.field == "model.layers" else refused.value
        expected = f"what {schedule.value} needs: {refused.field} {refused.expected}"
        yield FieldIssue(pointer, value, expected)
