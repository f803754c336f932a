"""The whole what-if of a job: where it is looked at, every schedule there, and one of them as a picture."""

from __future__ import annotations

from dataclasses import dataclass

from scheduler.errors import InvalidValueError
from scheduler.job import JobSpec
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


def compare(spec: JobSpec, snapshot: Snapshot, stand: Stand, pictured: str | None) -> Comparison:
    """Raises InvalidValueError where the schedule to be drawn is none, or cannot be on this chain."""
    if pictured is not None and pictured not in SCHEDULES:
        raise InvalidValueError("picture", pictured, f"one of {', '.join(SCHEDULES)}")
    setting = Setting.of(spec, stand.residual, stand.placement)
    picture = None if pictured is None else _picture(setting, pictured)
    return Comparison(spec, stand.why, what_if(snapshot, setting), picture)


def _picture(setting: Setting, schedule: str) -> Picture:
    pipeline, order = order_of(setting, schedule)
    placement = setting.placement.describe().replace(">", " → ")
    title = f"{setting.spec.name}: {schedule} on {placement}, {setting.micro_batches} micro-batches"
    return Picture(schedule, svg(title, pipeline, run_order(pipeline, order)))
