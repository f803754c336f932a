"""An order on its pipeline, timed without a plan in between: for orders whose soundness is known.

A plan is checked action by action in Python; to compare a dozen published orders of a large iteration that takes
seconds. Here the messages are put in as arrays, and the same compiled simulation runs them (`kernel.py`). On every
order that `plan_of` accepts the two agree to the last digit.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scheduler.errors import InvalidValueError
from scheduler.pipeline.kernel import Counts, Floats, compiled
from scheduler.pipeline.plan import kernel
from scheduler.pipeline.plan.generate import message_costs
from scheduler.pipeline.plan.ir import Op, Order, Pipeline

OPS = (Op.FORWARD, Op.BACKWARD, Op.INPUT_GRADIENT, Op.WEIGHT_GRADIENT)
"""By the numbers that the arrays have for them."""
_NUMBER = {op: number for number, op in enumerate(OPS)}
_F, _W = 0, 3
_FLYING, _PENDING = np.array([1, -1, -1, 0]), np.array([0, 0, 1, -1])
"""By operation: micro-batches that begin or end to be in flight, and to be between the two parts of a backward."""


@dataclass(frozen=True, slots=True, eq=False)
class Computations:
    """An order in arrays: of every computation its stage, its op (a number of OPS), its micro-batch and its rank, rank
    by rank."""

    stage: Counts
    op: Counts
    micro_batch: Counts
    rank: Counts

    @classmethod
    def of(cls, order: Order) -> Computations:
        """Those of an order without messages."""
        flat = np.array(
            [(stage, _NUMBER[op], micro_batch) for actions in order for stage, op, micro_batch in actions],
            dtype=np.int64,
        ).reshape(-1, 3)
        of_rank = np.repeat(np.arange(len(order)), [len(actions) for actions in order])
        return cls(flat[:, 0], flat[:, 1], flat[:, 2], of_rank)

    @property
    def splits(self) -> bool:
        """Whether any backward is in two parts."""
        return bool((self.op == _W).any())

    def most_held(self, ranks: int, pending_share: float = 1.0) -> tuple[float, ...]:
        """For each rank the most micro-batches that its stages hold together, from the start of F to the end of B or I,
        and from there to the end of W a part of each; one that several stages hold counts for each."""
        flying, pending = _FLYING[self.op], _PENDING[self.op]
        most = []
        for rank in range(ranks):
            here = self.rank == rank
            held = np.cumsum(flying[here]) + np.cumsum(pending[here]) * pending_share
            most.append(float(held.max(initial=0.0)))
        return tuple(most)

    def caps(self, stages: int) -> tuple[int, ...]:
        """For each stage the most that it has in flight itself."""
        change = (_FLYING + _PENDING)[self.op]
        return tuple(int(np.cumsum(change[self.stage == stage]).max(initial=0)) for stage in range(stages))


@dataclass(frozen=True, slots=True, eq=False)
class OrderRun:
    """One iteration, seconds. Rank r runs the steps begin[r] … begin[r + 1] − 1.

    A step is a computation, of `stage`, `op` (a number of OPS) and `micro_batch`; or, where `sends` is 0 or more, the
    message with the result of that step to rank `target`, from when it begins to occupy its link until it arrives.
    """

    makespan_s: float
    begin: Counts
    stage: Counts
    op: Counts
    micro_batch: Counts
    sends: Counts
    target: Counts
    start_s: Floats
    end_s: Floats


def run_order(pipeline: Pipeline, order: Order) -> OrderRun:
    """The timeline with non-blocking sends. Raises InvalidValueError where ranks would wait for each other."""
    return run_computations(pipeline, Computations.of(order))


def run_computations(pipeline: Pipeline, computations: Computations) -> OrderRun:
    """`run_order` of an order that stands in arrays already."""
    rank = np.array([stage.rank for stage in pipeline.stages], dtype=np.int64)
    neighbour = np.array([_ends(pipeline.following), _ends(pipeline.preceding)])  # of F, of I and B
    stage, op, micro_batch, of_rank = (
        computations.stage,
        computations.op,
        computations.micro_batch,
        computations.rank,
    )
    way = (op != _F).astype(np.int64)
    target = np.where(op == _W, -1, neighbour[way, stage])
    leaves = (target >= 0) & (rank[target] != of_rank)
    step = np.arange(stage.size) + np.concatenate(([0], np.cumsum(leaves)[:-1]))
    count = stage.size + int(leaves.sum())

    result = np.full((2, rank.size, int(micro_batch.max()) + 1), -1, dtype=np.int64)
    gives = op != _W
    result[way[gives], stage[gives], micro_batch[gives]] = step[gives]
    source = np.where(op == _W, -1, neighbour[1 - way, stage])
    needs = np.full(count, -1, dtype=np.int64)
    needs[step] = np.where(source >= 0, result[way, source, micro_batch], -1)

    durations = np.array([[each.cost.seconds(kind) for each in pipeline.stages] for kind in OPS])
    duration, latency, transfer = np.zeros(count), np.zeros(count), np.zeros(count)
    duration[step] = durations[op, stage]
    wakes, sends, link = (np.full(count, -1, dtype=np.int64) for _ in range(3))
    sending = step[leaves] + 1
    wakes[step[leaves]] = wakes[sending] = rank[target[leaves]]
    sends[sending] = step[leaves]
    number, latency_s, transfer_s = message_costs(pipeline)
    link[sending] = number[way[leaves], stage[leaves]]
    latency[sending] = latency_s[way[leaves], stage[leaves]]
    transfer[sending] = transfer_s[way[leaves], stage[leaves]]

    ranks = len(pipeline.workers)
    begin = np.concatenate(
        (
            [0],
            np.cumsum(np.bincount(of_rank, minlength=ranks) + np.bincount(of_rank[leaves], minlength=ranks)),
        )
    ).astype(np.int64)
    start_s, end_s = np.zeros(count), np.zeros(count)
    makespan_s = compiled(kernel.run)(
        begin,
        duration,
        needs,
        wakes,
        sends,
        link,
        len(pipeline.links),
        latency,
        transfer,
        False,
        start_s,
        end_s,
    )
    if makespan_s < 0:
        raise InvalidValueError("order", "ranks that wait for each other", "an order that ends")
    at = np.repeat(np.arange(stage.size), 1 + leaves)
    return OrderRun(
        float(makespan_s), begin, stage[at], op[at], micro_batch[at], sends, wakes, start_s, end_s
    )


def order_peak_bytes(pipeline: Pipeline, order: Order) -> tuple[float, ...]:
    """For each rank the most memory that it holds, bytes, with one version of its weights: `memory.peak_bytes`."""
    costs = [stage.cost for stage in pipeline.stages]
    peaks = [0.0] * len(pipeline.workers)
    for placed in pipeline.stages:
        peaks[placed.rank] += placed.cost.weight_bytes
    computations = Computations.of(order)
    stage, op, of_rank = computations.stage, computations.op, computations.rank
    for rank in range(len(peaks)):
        mine = of_rank == rank
        held = np.zeros(int(mine.sum()))
        for each in np.unique(stage[mine]).tolist():
            here = stage[mine] == each
            held += np.cumsum(np.where(here, _FLYING[op[mine]], 0)) * costs[each].inflight_bytes
            held += np.cumsum(np.where(here, _PENDING[op[mine]], 0)) * costs[each].pending_bytes
        peaks[rank] += float(held.max(initial=0.0))
    return tuple(peaks)


def _ends(stages: tuple[int | None, ...]) -> list[int]:
    return [-1 if stage is None else stage for stage in stages]
