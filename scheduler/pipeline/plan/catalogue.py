"""The schedules that a what-if compares: what each is on a job's own ranks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from scheduler.errors import InvalidValueError
from scheduler.job import Schedule
from scheduler.pipeline.choice import choose_window
from scheduler.pipeline.plan import layouts, orders, split_orders
from scheduler.pipeline.plan.auto import Fastest, fastest, fastest_window, generated
from scheduler.pipeline.plan.ir import Op, Order, Pipeline
from scheduler.pipeline.plan.laid_out import MOST_ACTIONS, laid_out, layout_of
from scheduler.pipeline.plan.layouts import line
from scheduler.pipeline.plan.setting import Setting

CHIMERA = "chimera"
"""The one that no job can ask for: its replicas of the weights are not kept alike."""
WINDOWS = (Schedule.GPIPE, Schedule.ONE_F_ONE_B, Schedule.SLACK_1F1B)
TWO_A_RANK = tuple(each for each in Schedule if each.parts > 1)
SCHEDULES = tuple(
    map(str, (*WINDOWS, Schedule.ZB_H1, *TWO_A_RANK, CHIMERA, Schedule.GENERATED, Schedule.AUTO))
)
NOTES: Mapping[str, str] = MappingProxyType(
    {
        str(Schedule.DUALPIPEV): "its pairs of a forward and a backward follow each other here",
        str(Schedule.HANAYO): "one wave; the order is list scheduling's",
        CHIMERA: "for evaluation only: two replicas of the weights, whose sum at the end is not timed",
    }
)


def order_of(setting: Setting, schedule: str) -> tuple[Pipeline, Order]:
    """The stages on their ranks and what every rank does under a schedule of `SCHEDULES`.

    Raises InvalidValueError where it is not available.
    """
    if schedule not in SCHEDULES:
        raise InvalidValueError("schedule", schedule, f"one of {', '.join(SCHEDULES)}")
    m = setting.micro_batches
    _require_small(setting)
    if schedule == CHIMERA:
        return setting.pipeline(layouts.both_ways(setting.ranks)), orders.chimera(setting.ranks, m)
    asked = Schedule(schedule)
    if asked.splits:
        require_split(setting)
    if asked.parts > 1:
        pipeline = setting.pipeline(layout_of(asked, setting.ranks), split=asked.splits)
        return pipeline, laid_out(asked, setting.ranks, m).order
    if asked in WINDOWS:
        choice = choose_window(asked, setting.split.chain, m, setting.split.limits)
        order = orders.windowed(choice.window, m)
    elif asked is Schedule.ZB_H1:
        order = split_orders.zb_h1(setting.ranks, m)
    elif asked is Schedule.AUTO:
        order = fastest_of(setting).order(setting.split, m)
    else:
        order = _generated(setting)
    return on_a_line(setting, order)


def fastest_of(setting: Setting) -> Fastest:
    """What `auto` comes to; of an iteration that is too large to be worked out, what a placement can tell."""
    choose = fastest if _is_small(setting) else fastest_window
    return choose(setting.split, setting.micro_batches)


def fastest_given(setting: Setting) -> Fastest:
    """What `auto` comes to on a placement of this job: whole backwards in a window, where its workers can be told no
    order."""
    if setting.spec.training.splits_backward:
        return fastest_of(setting)
    whole = replace(setting.split, weight_gradient_s=(0.0,) * setting.ranks)
    return fastest_window(whole, setting.micro_batches)


def on_a_line(setting: Setting, order: Order) -> tuple[Pipeline, Order]:
    """One stage a rank."""
    splits = any(action.op is Op.WEIGHT_GRADIENT for action in order[0])
    return setting.pipeline(line(setting.ranks), split=splits), order


def _generated(setting: Setting) -> Order:
    made = generated(setting.split, setting.micro_batches)
    if made is None:
        raise InvalidValueError("memory", "too little", "room for a micro-batch on every stage")
    return made.order(setting.split, setting.micro_batches)


def _is_small(setting: Setting) -> bool:
    return setting.ranks * setting.micro_batches <= MOST_ACTIONS


def _require_small(setting: Setting) -> None:
    if not _is_small(setting):
        raise InvalidValueError(
            "stages × micro_batches",
            setting.ranks * setting.micro_batches,
            f"at most {MOST_ACTIONS}, to be worked out action by action",
        )


def require_split(setting: Setting) -> None:
    """Raise InvalidValueError where a backward of the job cannot be cut in two."""
    if not setting.splits_backward:
        raise InvalidValueError(
            "training.recompute",
            "full",
            "selective or none: it splits backwards, and to leave gradients of weights for later takes many times "
            "what full recompute keeps",
        )
