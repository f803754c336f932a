"""Plans in the CSV form of torch.distributed.pipelining (2.13): a row for each rank, a cell for each action.

A cell is `<stage><op><micro-batch>`, such as `0F3` or `1SEND_B0`. torch reads it with `_load_csv`, as `compute_only`
without messages and as `compute_comms` with them. In the latter every stage ends with `<stage>REDUCE_GRAD`: only
there does torch divide the gradients by the number of micro-batches.
"""

from __future__ import annotations

import csv
import io
import re

from scheduler.errors import InvalidValueError
from scheduler.pipeline.plan.communication import computations
from scheduler.pipeline.plan.ir import Actions, Binding, Op, Order, Plan, StageAction, WeightRule
from scheduler.pipeline.plan.layouts import Layout

_ACTION = re.compile(rf"(\d+)({'|'.join(sorted(Op, key=len, reverse=True))})(\d+)")
_OVERLAPPED = re.compile(r"\((.*)\)OVERLAP_F_B")
_OF_THE_RUNTIME = re.compile(r"\d+(UNSHARD|RESHARD|REDUCE_GRAD)\d*")


def to_csv(plan: Plan, *, messages: bool = True) -> str:
    """The plan for torch's runtime, with its messages or without.

    Raises InvalidValueError for what that runtime cannot do: replicas of stages, other weight rules than flush, and
    an order that is a hint.
    """
    if len(plan.pipeline.edges) != len(plan.pipeline.stages) - 1:
        raise InvalidValueError("plan.pipeline", "several chains of stages", "one chain, for torch's runtime")
    if plan.weight_rule is not WeightRule.FLUSH:
        raise InvalidValueError("plan.weight_rule", plan.weight_rule.value, "flush, for torch's runtime")
    if plan.binding is not Binding.STRICT:
        raise InvalidValueError("plan.binding", plan.binding.value, "strict, for torch's runtime")
    written = io.StringIO()
    rows = csv.writer(written, lineterminator="\n")
    for actions in plan.actions if messages else computations(plan.actions):
        rows.writerow(_with_reductions(actions) if messages else map(str, actions))
    return written.getvalue()


def from_csv(text: str) -> Order:
    """The actions of every rank, with the messages if they are there: what `passes.plan_of` takes.

    An overlapped pair becomes its forward and then its backward. What torch does around a stage's parameters
    (UNSHARD, RESHARD, REDUCE_GRAD) is no part of a plan and left out, empty cells are idle steps.
    Raises InvalidValueError for anything else.
    """
    return tuple(
        tuple(action for cell in row for action in _read(cell.strip(), rank))
        for rank, row in enumerate(csv.reader(io.StringIO(text)))
    )


def layout_of(order: Order) -> Layout:
    """Which rank each stage of a single chain stands on, by who runs it.

    Raises InvalidValueError if a stage runs on two ranks, or one has no rank.
    """
    ranks: dict[int, int] = {}
    for rank, actions in enumerate(order):
        for action in actions:
            if ranks.setdefault(action.stage, rank) != rank:
                raise InvalidValueError(
                    "plan.actions",
                    f"stage {action.stage} on ranks {ranks[action.stage]} and {rank}",
                    "one rank a stage",
                )
    if sorted(ranks) != list(range(len(ranks))) or len(set(ranks.values())) != len(order):
        raise InvalidValueError(
            "plan.actions", f"stages {sorted(ranks)}", "stages from 0 on, at least one a rank"
        )
    return Layout((tuple(ranks[stage] for stage in range(len(ranks))),))


def _with_reductions(actions: Actions) -> list[str]:
    """The cells of a rank; each of its stages reduces after its last computation."""
    last = {action.stage: at for at, action in enumerate(actions) if action.op.computes}
    cells = []
    for at, action in enumerate(actions):
        cells.append(str(action))
        if last.get(action.stage) == at:
            cells.append(f"{action.stage}REDUCE_GRAD")
    return cells


def _read(cell: str, rank: int) -> list[StageAction]:
    if not cell or _OF_THE_RUNTIME.fullmatch(cell):
        return []
    if pair := _OVERLAPPED.fullmatch(cell):
        return [action for part in pair[1].split(";") for action in _read(part.strip(), rank)]
    if (found := _ACTION.fullmatch(cell)) is None:
        raise InvalidValueError(f"row {rank}", cell, "cells like 0F3, 1SEND_B0 or (0F1;1B0)OVERLAP_F_B")
    return [StageAction(int(found[1]), Op(found[2]), int(found[3]))]
