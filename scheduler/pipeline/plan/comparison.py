"""The whole what-if of a job: where it is looked at, every schedule there, and one of them as a picture."""

from __future__ import annotations

from dataclasses import dataclass

from scheduler.errors import InvalidValueError
from scheduler.job import JobSpec
from scheduler.pipeline.plan.advice import JobAdvice, advise_job
from scheduler.pipeline.plan.catalogue import SCHEDULES, order_of
from scheduler.pipeline.plan.order_run import run_order
from scheduler.pipeline.plan.picture import svg
from scheduler.pipeline.plan.setting import Setting
from scheduler.pipeline.plan.what_if import WhatIf, what_if
from scheduler.pipeline.plan.where import Stand
from scheduler.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Picture:
    """A timeline, as SVG."""

    schedule: str
    svg: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """Every schedule of a job on one chain, and `why` it is this chain."""

    spec: JobSpec
    why: str
    made: WhatIf
    picture: Picture | None
    advice: JobAdvice | None
    """How its stages might agree on their weights; of jobs whose updates are known."""


def compare(
    spec: JobSpec, snapshot: Snapshot, stand: Stand, pictured: str | None, per_update: int | None
) -> Comparison:
    """`per_update` is how many micro-batches of a pipeline make an update of its weights, where that is known.

    Raises InvalidValueError where the schedule to be drawn is none, or cannot be on this chain.
    """
    if pictured is not None and pictured not in SCHEDULES:
        raise InvalidValueError("picture", pictured, f"one of {', '.join(SCHEDULES)}")
    setting = Setting.of(spec, stand.residual, stand.placement)
    picture = None if pictured is None else _picture(setting, pictured)
    advice = None if per_update is None else advise_job(setting, per_update)
    return Comparison(spec, stand.why, what_if(snapshot, setting), picture, advice)


def _picture(setting: Setting, schedule: str) -> Picture:
    pipeline, order = order_of(setting, schedule)
    placement = setting.placement.describe().replace(">", " → ")
    title = f"{setting.spec.name}: {schedule} on {placement}, {setting.micro_batches} micro-batches"
    return Picture(schedule, svg(title, pipeline, run_order(pipeline, order)))
