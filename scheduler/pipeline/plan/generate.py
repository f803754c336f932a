"""A generated order: list scheduling on the actual links under the actual memory.

The clock jumps from event to event. Every idle rank, in order of its number, takes what can start now: I before F
before W. A rule (`Rule`) may put W before F, give F precedence until so many micro-batches of the stage are in flight,
and says how much W may delay what is known to arrive. No rule is the best everywhere, so all are tried.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scheduler.errors import InvalidValueError
from scheduler.pipeline.kernel import Counts, Floats, compiled
from scheduler.pipeline.plan.ir import Op, Order, Pipeline, StageAction, StageCost, Worker
from scheduler.pipeline.plan.layouts import wave
from scheduler.pipeline.plan.list_kernel import list_schedule
from scheduler.pipeline.plan.memory import OutOfMemoryError
from scheduler.pipeline.plan.orders import one_f_one_b, windowed
from scheduler.pipeline.plan.passes import place, plan_of
from scheduler.pipeline.plan.split_orders import zb_h1
from scheduler.pipeline.plan.timing import timeline

OPS = (Op.FORWARD, Op.INPUT_GRADIENT, Op.WEIGHT_GRADIENT, Op.BACKWARD)
"""By the numbers that the kernel gives them."""


@dataclass(frozen=True, slots=True)
class Rule:
    """How the list scheduler chooses.

    With `split`, I and W are apart. F of a stage comes before I while fewer than `eager[stage]` micro-batches are in
    flight there. While something is known to arrive, W runs only if it delays it by at most 1 − `patience` of W.
    """

    split: bool
    eager: tuple[int, ...]
    patience: float = 1.0
    weights_first: bool = False


@dataclass(frozen=True, slots=True)
class Generated:
    """An order and how long it takes with non-blocking sends, seconds."""

    order: Order
    makespan_s: float


def generate(pipeline: Pipeline, micro_batches: int) -> Generated:
    """The fastest order that any rule finds, or a published one that fits; of equally fast ones the first.

    On a line those are 1F1B, slack 1F1B and ZB-H1, so it is never slower than these where they fit.
    Raises InvalidValueError for more than one chain, and where a worker cannot hold even one micro-batch.
    """
    lists = ListScheduler(pipeline, micro_batches)
    ran = [made for made in map(lists.run, rules(pipeline, micro_batches)) if made[0] >= 0]
    found = [lists.generated(*min(ran, key=lambda made: made[0]))] if ran else []
    if [stage.rank for stage in pipeline.stages] == list(range(len(pipeline.stages))):
        for order in _published(pipeline, micro_batches):
            try:
                plan = plan_of(pipeline, order)
            except OutOfMemoryError:
                continue
            found.append(Generated(order, timeline(plan).makespan_s))
    if not found:
        raise InvalidValueError(
            "workers.memory_bytes", "too little", "memory for a micro-batch on every stage"
        )
    return min(found, key=lambda made: made.makespan_s)


def _published(pipeline: Pipeline, micro_batches: int) -> Iterator[Order]:
    stages = len(pipeline.stages)
    yield zb_h1(stages, micro_batches)
    yield one_f_one_b(stages, micro_batches)
    yield windowed(tuple(min(cap, micro_batches) for cap in slack_caps(pipeline)), micro_batches)


def rules(pipeline: Pipeline, micro_batches: int) -> Iterator[Rule]:
    """Whole backwards and split ones, with each of the patiences, precedences and windows that are worth trying."""
    stages = len(pipeline.stages)
    strict = tuple(stages - stage for stage in range(stages))
    windows = dict.fromkeys(
        (
            (0,) * stages,
            strict,
            tuple(2 * cap - 1 for cap in strict),
            slack_caps(pipeline),
            (micro_batches,) * stages,
        )
    )
    for eager in windows:
        yield Rule(False, eager)
    for eager, patience, weights_first in product(windows, (1.0, 0.5, 0.0), (False, True)):
        yield Rule(True, eager, patience, weights_first)


def follow(pipeline: Pipeline, micro_batches: int, rule: Rule) -> Generated | None:
    """The order that a rule leads to; none where the memory holds it up."""
    lists = ListScheduler(pipeline, micro_batches)
    makespan_s, taken = lists.run(rule)
    return lists.generated(makespan_s, taken) if makespan_s >= 0 else None


class ListScheduler:
    """`list_kernel` on one pipeline, whose numbers it works out once for all rules."""

    def __init__(self, pipeline: Pipeline, micro_batches: int) -> None:
        if micro_batches < 1:
            raise InvalidValueError("micro_batches", micro_batches, "a whole number of at least 1")
        if pipeline.following != (*range(1, len(pipeline.stages)), None):
            raise InvalidValueError(
                "pipeline.edges", pipeline.following, "one chain, its stages numbered in order"
            )
        costs = [stage.cost for stage in pipeline.stages]
        self._stages, self._ranks, self._micro_batches = len(costs), len(pipeline.workers), micro_batches
        self._pipeline_arrays = (
            np.array([stage.rank for stage in pipeline.stages], dtype=np.int64),
            _ends(pipeline.preceding),
            _ends(pipeline.following),
            np.array([[cost.seconds(op) for cost in costs] for op in OPS], dtype=np.float64),
        )
        link, latency, transfer = message_costs(pipeline)
        self._link_arrays = (link, len(pipeline.links), latency, transfer)
        self._memory_arrays = (
            np.array([cost.inflight_bytes for cost in costs], dtype=np.float64),
            np.array([cost.pending_bytes for cost in costs], dtype=np.float64),
            np.array(free_bytes(pipeline), dtype=np.float64),
        )

    @property
    def arrays(self) -> tuple[Any, ...]:
        """What the kernels take: `rank_of` … `room` of `list_kernel.list_schedule`."""
        return (*self._pipeline_arrays, *self._link_arrays, *self._memory_arrays)

    def run(self, rule: Rule) -> tuple[float, NDArray[np.int64]]:
        """The makespan, −1 where the memory holds it up, and what `list_kernel` took."""
        actions = self._stages * self._micro_batches * (3 if rule.split else 2)
        taken = np.zeros((actions, 4), dtype=np.int64)
        makespan_s = compiled(list_schedule)(
            *self.arrays,
            np.array(rule.eager, dtype=np.int64),
            rule.patience,
            rule.weights_first,
            rule.split,
            self._micro_batches,
            taken,
        )
        return float(makespan_s), taken

    def generated(self, makespan_s: float, taken: NDArray[np.int64]) -> Generated:
        """What was taken, as an order."""
        order: list[list[StageAction]] = [[] for _ in range(self._ranks)]
        for rank, op, stage, micro_batch in taken.tolist():
            order[rank].append(StageAction(stage, OPS[op], micro_batch))
        return Generated(tuple(map(tuple, order)), makespan_s)


def free_bytes(pipeline: Pipeline) -> list[float]:
    """What each worker has left for activations beside one version of its weights, bytes."""
    room = [worker.memory_bytes for worker in pipeline.workers]
    for stage in pipeline.stages:
        room[stage.rank] -= stage.cost.weight_bytes
    return room


def slack_caps(pipeline: Pipeline) -> tuple[int, ...]:
    """The slack window of the stages as they stand: one more for every pace of a round trip over the next edge."""
    _, latency, transfer = message_costs(pipeline)
    pace_s = max(stage.cost.forward_s + stage.cost.backward_s for stage in pipeline.stages)
    caps = [1]
    for stage in reversed(range(len(pipeline.stages) - 1)):
        round_trip_s = latency[0, stage] + transfer[0, stage] + latency[1, stage + 1] + transfer[1, stage + 1]
        caps.append(caps[-1] + 1 + (math.ceil(round_trip_s / pace_s) if pace_s else 0))
    return tuple(reversed(caps))


def message_costs(pipeline: Pipeline) -> tuple[Counts, Floats, Floats]:
    """Link number, latency and transfer time of what each stage sends: row 0 its activation, row 1 its gradient."""
    stages = len(pipeline.stages)
    number = np.full((2, stages), -1, dtype=np.int64)
    latency, transfer = np.zeros((2, stages)), np.zeros((2, stages))
    numbers = {link: at for at, link in enumerate(pipeline.links)}
    for edge in pipeline.edges:
        for way, (source, target) in enumerate(((edge.source, edge.target), (edge.target, edge.source))):
            link = pipeline.link(pipeline.stages[source].rank, pipeline.stages[target].rank)
            if link is not None:
                number[way, source], latency[way, source] = numbers[link], link.latency_s
                transfer[way, source] = link.transfer_s(edge.wire_bytes)
    return number, latency, transfer


def _ends(stages: Sequence[int | None]) -> Counts:
    """Stage numbers, −1 for none."""
    return np.array([-1 if stage is None else stage for stage in stages], dtype=np.int64)


def hanayo(ranks: int, waves: int, micro_batches: int) -> Order:
    """Whole backwards on a wave (Liu et al., arXiv 2308.15762), a backward twice a forward. Layout: `wave`.

    The placement is the published one. The order is list scheduling's, backwards first, as its table is not public.
    """
    layout = wave(ranks, waves)
    pipeline = place(layout, [StageCost(1.0, 1.0, 1.0)] * layout.stages, [Worker("one")] * ranks)
    made = follow(pipeline, micro_batches, Rule(False, (0,) * layout.stages))
    if made is None:
        raise InvalidValueError("hanayo", (ranks, waves), "an order without a memory limit")
    return made.order
