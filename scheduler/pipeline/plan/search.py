"""A better order by local search: annealing, from an order that is there, on the actual links and memory.

`generate` takes milliseconds, this a second or more; `exact.best_order` proves. On a V, whose optimum nobody has
proven, this is the best that there is.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from scheduler.errors import InvalidValueError
from scheduler.pipeline.kernel import Counts, compiled
from scheduler.pipeline.plan.generate import OPS, Generated, ListScheduler, generate
from scheduler.pipeline.plan.ir import Op, Order, Pipeline, StageAction
from scheduler.pipeline.plan.search_kernel import anneal

WARM, COLD = 0.01, 0.002
"""Temperatures, in units of the slowest stage's forward and backward."""
POLISHING = 13
"""Moves for each action of an order."""


def polished(pipeline: Pipeline, micro_batches: int) -> Generated:
    """What the rules of `generate` lead to, and a short search from there: some 10 ms for 8 stages × 16.

    Raises InvalidValueError as the two do.
    """
    made = generate(pipeline, micro_batches)
    actions = sum(map(len, made.order))
    return search(pipeline, micro_batches, made, rounds=1, steps=POLISHING * actions)


def search(
    pipeline: Pipeline, micro_batches: int, start: Generated, rounds: int = 6, steps: int = 100_000
) -> Generated:
    """The best order found in `rounds` annealings of `steps` moves, each from the best so far; never slower than
    `start`. Backwards are split. The same for the same arguments; about 3 µs a move with 8 × 16 on a line.

    Raises InvalidValueError for more than one chain, for `start` of another pipeline, and where two ranks send over
    one link: who comes first there would have to be known of every move.
    """
    lists = ListScheduler(pipeline, micro_batches)
    _require_own_links(pipeline)
    begin, code = _codes(start.order, len(pipeline.stages))
    pace_s = max(stage.cost.forward_s + stage.cost.backward_s for stage in pipeline.stages)
    best_s, found = start.makespan_s, False
    for seed in range(rounds):
        tried = np.empty_like(code)
        tried_s = compiled(anneal)(
            begin, code, *lists.arrays, micro_batches, steps, WARM * pace_s, COLD * pace_s, seed, tried
        )
        if tried_s < 0:
            raise InvalidValueError("start", "an order that comes to a stand", "one of this pipeline")
        if tried_s < best_s * (1 - 1e-12):
            best_s, code, found = float(tried_s), tried, True
    return Generated(_order(begin, code, len(pipeline.stages)), best_s) if found else start


def _require_own_links(pipeline: Pipeline) -> None:
    senders: dict[tuple[str, str], set[int]] = {}
    for edge in pipeline.edges:
        one, other = (pipeline.stages[stage].rank for stage in (edge.source, edge.target))
        for source, target in ((one, other), (other, one)):
            if pipeline.link(source, target) is not None:
                regions = (pipeline.workers[source].region, pipeline.workers[target].region)
                senders.setdefault(regions, set()).add(source)
    for regions, ranks in senders.items():
        if len(ranks) > 1:
            raise InvalidValueError(f"links {regions}", sorted(ranks), "a link on which one rank sends")


def _codes(order: Order, stages: int) -> tuple[Counts, Counts]:
    """Where each rank's actions begin, and what they are: kind × stages + stage. A whole backward is I, then W."""
    begin, codes = [0], []
    for actions in order:
        for action in actions:
            if action.op is Op.BACKWARD:
                codes += [stages + action.stage, 2 * stages + action.stage]
            elif action.op.computes:
                codes.append(OPS.index(action.op) * stages + action.stage)
        begin.append(len(codes))
    return np.array(begin, dtype=np.int64), np.array(codes, dtype=np.int64)


def _order(begin: Counts, code: Counts, stages: int) -> Order:
    order: list[tuple[StageAction, ...]] = []
    for first, last in pairwise(begin.tolist()):
        count: dict[int, int] = {}
        actions = []
        for each in code[first:last].tolist():
            kind, stage = divmod(each, stages)
            actions.append(StageAction(stage, OPS[kind], count.get(each, 0)))
            count[each] = count.get(each, 0) + 1
        order.append(tuple(actions))
    return tuple(order)
