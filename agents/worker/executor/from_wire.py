"""Reads the plan of a rank from the wire, checked whole: what cannot be executed is refused before anything starts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import cast

from agents.protocol import WorkerPlan
from agents.worker.executor.rank_plan import COMPUTING, Action, Op, RankPlan, windowed

_CELL = re.compile(r"(\d+)([A-Z_]+)(\d+)")


class PlanError(ValueError):
    """A plan that cannot be executed; the text names the field, what it says, and what would be right."""


def rank_plan(plan: WorkerPlan, rank: int, ranks: int) -> RankPlan:
    """What `rank` of a pipeline of `ranks` executes.

    Raises PlanError for an order that is not complete, contradicts itself, or leaves out or misplaces a message.
    """
    order, window = plan.order, plan.window
    stage_ranks = tuple(range(ranks)) if order is None else tuple(order.stage_ranks)
    _check_stages(plan, stage_ranks, ranks)
    if order is None:
        actions = windowed(rank, window[rank], plan.micro_batches)
    else:
        actions = tuple(_read(cell) for cell in order.actions)
    made = RankPlan(
        rank,
        stage_ranks,
        actions,
        tuple(window),
        plan.micro_batches,
        plan.binding,
        plan.weight_rule,
        is_window=order is None,
    )
    if order is not None:
        _check_complete(made)
        _check_split(made)
        _check_messages(made)
        _check_losses(made)
        _check_caps(made)
    return made


def _read(cell: str) -> Action:
    found = _CELL.fullmatch(cell)
    if found is None:
        raise PlanError(f"order.actions: {cell!r} must be like 0F3 or 1SEND_B0")
    return Action(int(found[1]), cast(Op, found[2]), int(found[3]))


def _check_stages(plan: WorkerPlan, stage_ranks: Sequence[int], ranks: int) -> None:
    if plan.order is not None and set(stage_ranks) != set(range(ranks)):
        raise PlanError(
            f"order.stage_ranks is {list(stage_ranks)}: every rank from 0 to {ranks - 1} must have a stage, "
            "and no other"
        )
    layers, window = plan.layers_per_stage, plan.window
    if len(layers) != len(stage_ranks) or len(window) != len(stage_ranks):
        raise PlanError(
            f"layers_per_stage has {len(layers)} and window {len(window)} entries, "
            f"but the pipeline has {len(stage_ranks)} stages"
        )
    if plan.order is None and any(here < behind for here, behind in pairwise(window)):
        raise PlanError(
            f"window is {window}: a stage must not have fewer micro-batches in flight than the stage behind "
            "it, which would wait for ever"
        )


def _check_complete(plan: RankPlan) -> None:
    """Each stage of the rank: F, then either B, or I and then W, once for every micro-batch."""
    done: set[Action] = set()
    for action in plan.actions:
        stage, op, micro_batch = action
        if not plan.has(stage):
            raise PlanError(
                f"order.actions: {action} on rank {plan.rank}, whose stages are {list(plan.stages)}"
            )
        if micro_batch >= plan.micro_batches:
            raise PlanError(
                f"order.actions: {action}, but there are {plan.micro_batches} micro-batches from 0"
            )
        if action in done:
            raise PlanError(f"order.actions: {action} twice: every action must come once")
        before = {"B": "F", "I": "F", "W": "I"}.get(op)
        if before is not None and Action(stage, cast(Op, before), micro_batch) not in done:
            raise PlanError(f"order.actions: {action} must come after {stage}{before}{micro_batch}")
        done.add(action)
    for stage in plan.stages:
        for micro_batch in range(plan.micro_batches):
            ran = {op for op in COMPUTING if Action(stage, cast(Op, op), micro_batch) in done}
            if ran not in ({"F", "B"}, {"F", "I", "W"}):
                raise PlanError(
                    f"order.actions: stage {stage} runs {sorted(ran)} of micro-batch {micro_batch}: "
                    "it must be F, and either B or I and W"
                )


def _check_split(plan: RankPlan) -> None:
    """A rule that updates within an iteration would meet gradients of which a part is still to come."""
    split = next((action for action in plan.computations if action.op == "W"), None)
    if split is not None and plan.weight_rule != "flush":
        raise PlanError(
            f"order.actions: {split} with weight_rule {plan.weight_rule}: only flush has backwards in two parts"
        )


def _check_messages(plan: RankPlan) -> None:
    """All messages are there, a send after what it sends and a receive before its use; or there are none at all."""
    at = {action: index for index, action in enumerate(plan.actions)}
    needed = [(action, *message) for action in plan.computations for message in _messages_of(plan, action)]
    there = len(plan.actions) - len(plan.computations)
    if needed and not there:
        if plan.for_torch:
            raise PlanError(
                "order.actions: no messages: a strict order with the weight rule flush must have them, "
                "as torch's runtime executes it"
            )
        return
    for action, message, comes_first in needed:
        if message not in at or (at[message] < at[action]) != comes_first:
            raise PlanError(
                f"order.actions: {message} must come {'before' if comes_first else 'after'} {action}"
            )
    if there != len(needed):
        raise PlanError("order.actions: a message of something that stays on its rank, or goes nowhere")


def _check_losses(plan: RankPlan) -> None:
    """torch's runtime takes the losses of the micro-batches in their order."""
    forwards = [each.micro_batch for each in plan.computations if each[:2] == (plan.last_stage, "F")]
    if plan.for_torch and forwards != sorted(forwards):
        raise PlanError(
            f"order.actions: the last stage runs the forwards {forwards}: a strict order with the weight rule "
            "flush must have them ascending, as torch's runtime executes it"
        )


def _messages_of(plan: RankPlan, action: Action) -> Iterator[tuple[Action, bool]]:
    """The messages of a computation, and whether each comes before it."""
    stage, op, micro_batch = action
    behind, ahead = stage - 1, stage + 1
    if op == "F":
        if behind >= 0 and not plan.has(behind):
            yield Action(stage, "RECV_F", micro_batch), True
        if ahead <= plan.last_stage and not plan.has(ahead):
            yield Action(stage, "SEND_F", micro_batch), False
    elif op in ("B", "I"):
        if ahead <= plan.last_stage and not plan.has(ahead):
            yield Action(stage, "RECV_B", micro_batch), True
        if behind >= 0 and not plan.has(behind):
            yield Action(stage, "SEND_B", micro_batch), False


def _check_caps(plan: RankPlan) -> None:
    """A strict order needs no more in flight than its caps; a hint is kept within them as it runs."""
    if plan.binding == "hint":
        return
    held = dict.fromkeys(plan.stages, 0)
    for stage, op, _ in plan.computations:
        held[stage] += {"F": 1, "B": -1, "W": -1}.get(op, 0)
        if held[stage] > plan.caps[stage]:
            raise PlanError(
                f"window is {list(plan.caps)}, but the order has {held[stage]} micro-batches of stage {stage} "
                "in flight: its cap must be no less"
            )
