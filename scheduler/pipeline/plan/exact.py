"""The best order of a line with split backwards, by CP-SAT: what `generate` is held to on small cases.

Micro-batches are alike, so each kind of action runs them in order and each link carries them in order. Then memory is
a precedence too: with room for c in flight, F of micro-batch m + c follows what frees micro-batch m.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from scheduler.errors import InvalidValueError
from scheduler.pipeline.plan.generate import Generated, free_bytes
from scheduler.pipeline.plan.ir import Op, Order, Pipeline, StageAction
from scheduler.pipeline.plan.passes import plan_of
from scheduler.pipeline.plan.timing import timeline

_KINDS = (Op.FORWARD, Op.INPUT_GRADIENT, Op.WEIGHT_GRADIENT)

_SENT = {Op.FORWARD: Op.SEND_FORWARD, Op.INPUT_GRADIENT: Op.SEND_BACKWARD}


@dataclass(frozen=True, slots=True)
class Best:
    """An order, how long it takes in whole ticks, what no order is shorter than, and whether the two are equal."""

    order: Order
    makespan_ticks: int
    bound_ticks: int
    proven: bool


def best_order(
    pipeline: Pipeline, micro_batches: int, start: Generated, tick_s: float, limit_s: float, workers: int = 2
) -> Best:
    """The shortest order with split backwards and non-blocking sends found within `limit_s`; seconds of the machine.

    `start` is an order to begin from. Times are rounded to ticks. Raises InvalidValueError for anything but one stage
    a rank, a micro-batch's memory that is freed in two steps, and a time limit in which nothing was found.
    """
    if [stage.rank for stage in pipeline.stages] != list(range(len(pipeline.stages))):
        raise InvalidValueError("pipeline.stages", len(pipeline.stages), "one stage a rank, in order")
    from ortools.sat.python import cp_model  # a second of import, for who asks for a proof

    model = cp_model.CpModel()
    horizon = round(start.makespan_s / tick_s) + len(pipeline.stages) * micro_batches
    starts, ends = _actions(model, pipeline, micro_batches, tick_s, horizon)
    _memory(model, pipeline, micro_batches, starts, ends)
    _messages(model, pipeline, micro_batches, tick_s, horizon, starts, ends)
    makespan = model.new_int_var(0, horizon, "makespan")
    for stage in range(len(pipeline.stages)):
        model.add(makespan >= ends[StageAction(stage, Op.WEIGHT_GRADIENT, micro_batches - 1)])
    model.minimize(makespan)
    for action, start_s in _starts_of(pipeline, start):
        model.add_hint(starts[action], round(start_s / tick_s))
    model.add_hint(makespan, round(start.makespan_s / tick_s))
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = limit_s
    solver.parameters.num_workers = workers
    solver.parameters.random_seed = 0
    status = solver.solve(model)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        raise InvalidValueError("limit_s", limit_s, "more time, or memory for a micro-batch on every stage")
    order = tuple(
        tuple(
            sorted(
                (action for action in ends if action.stage == stage),
                key=lambda action: (solver.value(starts[action]), solver.value(ends[action]), action.op),
            )
        )
        for stage in range(len(pipeline.stages))
    )
    return Best(
        order, round(solver.objective_value), round(solver.best_objective_bound), status == cp_model.OPTIMAL
    )


def _starts_of(pipeline: Pipeline, start: Generated) -> Iterator[tuple[StageAction, float]]:
    """When every action of an order starts, messages over a link among them; a whole backward is I and then W."""
    made = timeline(plan_of(pipeline, start.order))
    for rank, (actions, spans) in enumerate(zip(made.actions, made.spans, strict=True)):
        for action, (start_s, _) in zip(actions, spans, strict=True):
            if action.op is Op.BACKWARD:
                yield action._replace(op=Op.INPUT_GRADIENT), start_s
                cost = pipeline.stages[action.stage].cost
                yield action._replace(op=Op.WEIGHT_GRADIENT), start_s + cost.input_gradient_s
            elif action.op.computes or pipeline.link(rank, _target(action)) is not None:
                yield action, start_s


def _target(send: StageAction) -> int:
    """Of a message on a line."""
    return send.stage + 1 if send.op is Op.SEND_FORWARD else send.stage - 1


Times = dict[StageAction, Any]


def _actions(
    model: Any, pipeline: Pipeline, micro_batches: int, tick_s: float, horizon: int
) -> tuple[Times, Times]:
    """Starts and ends: each rank does one thing at a time, each kind in order, I after F, W after I."""
    starts: Times = {}
    ends: Times = {}
    for stage, placed in enumerate(pipeline.stages):
        intervals = []
        for kind in _KINDS:
            length = round(placed.cost.seconds(kind) / tick_s)
            for micro_batch in range(micro_batches):
                action = StageAction(stage, kind, micro_batch)
                starts[action] = model.new_int_var(0, horizon, str(action))
                ends[action] = starts[action] + length
                intervals.append(model.new_fixed_size_interval_var(starts[action], length, str(action)))
                if micro_batch:
                    model.add(starts[action] >= ends[StageAction(stage, kind, micro_batch - 1)])
                if kind is not Op.FORWARD:
                    before = Op.FORWARD if kind is Op.INPUT_GRADIENT else Op.INPUT_GRADIENT
                    model.add(starts[action] >= ends[StageAction(stage, before, micro_batch)])
        model.add_no_overlap(intervals)
    return starts, ends


def _memory(model: Any, pipeline: Pipeline, micro_batches: int, starts: Times, ends: Times) -> None:
    for stage, room in enumerate(free_bytes(pipeline)):
        cost = pipeline.stages[stage].cost
        if cost.pending_bytes not in (0, cost.inflight_bytes):
            raise InvalidValueError("cost.pending_bytes", cost.pending_bytes, "0, or all of inflight_bytes")
        if not cost.inflight_bytes or room >= cost.inflight_bytes * micro_batches:
            continue
        cap = int(room / cost.inflight_bytes)
        frees = Op.WEIGHT_GRADIENT if cost.pending_bytes else Op.INPUT_GRADIENT
        for micro_batch in range(micro_batches - cap):
            model.add(
                starts[StageAction(stage, Op.FORWARD, micro_batch + cap)]
                >= ends[StageAction(stage, frees, micro_batch)]
            )


def _messages(
    model: Any,
    pipeline: Pipeline,
    micro_batches: int,
    tick_s: float,
    horizon: int,
    starts: Times,
    ends: Times,
) -> None:
    """A message leaves when it is computed and the one before it is out of the link."""
    for edge in pipeline.edges:
        for kind, source, target in (
            (Op.FORWARD, edge.source, edge.target),
            (Op.INPUT_GRADIENT, edge.target, edge.source),
        ):
            link = pipeline.link(source, target)
            if link is None:
                for micro_batch in range(micro_batches):
                    model.add(
                        starts[StageAction(target, kind, micro_batch)]
                        >= ends[StageAction(source, kind, micro_batch)]
                    )
                continue
            transfer = round(link.transfer_s(edge.wire_bytes) / tick_s)
            latency = round(link.latency_s / tick_s)
            free = None
            for micro_batch in range(micro_batches):
                message = StageAction(source, _SENT[kind], micro_batch)
                sent = starts[message] = model.new_int_var(0, horizon, str(message))
                model.add(sent >= ends[StageAction(source, kind, micro_batch)])
                if free is not None:
                    model.add(sent >= free)
                free = sent + transfer
                model.add(starts[StageAction(target, kind, micro_batch)] >= free + latency)
