"""The schedules that a what-if compares: what each is on a job's own ranks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from scheduler.errors import InvalidValueError
from scheduler.job import Schedule
from scheduler.pipeline.choice import choose_window
from scheduler.pipeline.plan import layouts, orders, split_orders
from scheduler.pipeline.plan.auto import Fastest, best_rule, fastest, fastest_window
from scheduler.pipeline.plan.generate import follow, hanayo
from scheduler.pipeline.plan.ir import Op, Order, Pipeline
from scheduler.pipeline.plan.layouts import Layout, line
from scheduler.pipeline.plan.setting import Setting

MOST_ACTIONS = 8192
"""Ranks × micro-batches up to which orders that are no windows are worked out, action by action."""
CHUNKS = 2
"""Stages a rank, where it has several."""


@dataclass(frozen=True, slots=True)
class LaidOut:
    """A published order on its layout."""

    layout: Callable[[int], Layout]
    order: Callable[[int, int], Order]
    note: str | None = None


LAID_OUT = {
    "interleaved": LaidOut(
        lambda ranks: layouts.loop(ranks, CHUNKS), lambda ranks, m: orders.interleaved(ranks, CHUNKS, m)
    ),
    "looped-bfs": LaidOut(
        lambda ranks: layouts.loop(ranks, CHUNKS),
        lambda ranks, m: orders.looped_breadth_first(ranks, CHUNKS, m),
    ),
    "zb-v": LaidOut(layouts.vee, split_orders.zb_v),
    "v-half": LaidOut(layouts.vee, split_orders.v_half),
    "dualpipev": LaidOut(
        layouts.vee, split_orders.dual_pipe_v, "its pairs of a forward and a backward follow each other here"
    ),
    "hanayo": LaidOut(
        layouts.vee, lambda ranks, m: hanayo(ranks, 1, m), "one wave; the order is list scheduling's"
    ),
    "chimera": LaidOut(
        layouts.both_ways,
        orders.chimera,
        "for evaluation only: two replicas of the weights, whose sum at the end is not timed",
    ),
}
WINDOWS = {"gpipe": Schedule.GPIPE, "1f1b": Schedule.ONE_F_ONE_B, "slack-1f1b": Schedule.SLACK_1F1B}
SPLIT = frozenset(("zb-h1", "zb-v", "v-half", "dualpipev", "generated"))
SCHEDULES = (*WINDOWS, "zb-h1", *LAID_OUT, "generated", "auto")


def order_of(setting: Setting, schedule: str) -> tuple[Pipeline, Order]:
    """The stages on their ranks and what every rank does under a schedule of `SCHEDULES`.

    Raises InvalidValueError where it is not available.
    """
    if schedule not in SCHEDULES:
        raise InvalidValueError("schedule", schedule, f"one of {', '.join(SCHEDULES)}")
    m = setting.micro_batches
    _require_small(setting)
    if schedule in SPLIT:
        require_split(setting)
    if schedule in LAID_OUT:
        laid_out = LAID_OUT[schedule]
        pipeline = setting.pipeline(laid_out.layout(setting.ranks), split=schedule in SPLIT)
        return pipeline, laid_out.order(setting.ranks, m)
    if schedule in WINDOWS:
        choice = choose_window(WINDOWS[schedule], setting.split.chain, m, setting.split.limits)
        order = orders.windowed(choice.window, m)
    elif schedule == "zb-h1":
        order = split_orders.zb_h1(setting.ranks, m)
    elif schedule == "auto":
        order = fastest_of(setting).order(setting.split, m)
    else:
        order = _generated(setting)
    return on_a_line(setting, order)


def fastest_of(setting: Setting) -> Fastest:
    """What `auto` comes to; of an iteration that is too large to be worked out, what a placement can tell."""
    choose = fastest if _is_small(setting) else fastest_window
    return choose(setting.split, setting.micro_batches)


def fastest_today(setting: Setting) -> Fastest:
    """What `auto` comes to on a placement of this job: its workers are told a window and, if they can, a lag."""
    whole = setting.split
    if not setting.spec.training.splits_backward:
        whole = replace(whole, weight_gradient_s=(0.0,) * setting.ranks)
    return fastest_window(whole, setting.micro_batches)


def on_a_line(setting: Setting, order: Order) -> tuple[Pipeline, Order]:
    """One stage a rank."""
    splits = any(action.op is Op.WEIGHT_GRADIENT for action in order[0])
    return setting.pipeline(line(setting.ranks), split=splits), order


def _generated(setting: Setting) -> Order:
    made = best_rule(setting.split, setting.micro_batches)
    followed = made and follow(setting.split.pipeline(split=made[0].split), setting.micro_batches, made[0])
    if not followed:
        raise InvalidValueError("memory", "too little", "room for a micro-batch on every stage")
    return followed.order


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
            "selective or none: it splits backwards, and what full recompute "
            "rebuilds would have to be kept until the gradients of weights",
        )
