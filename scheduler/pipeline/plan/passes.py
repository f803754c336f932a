"""From stages and an order to a checked plan: place → order → insert the messages → check."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from scheduler.errors import InvalidValueError
from scheduler.pipeline.plan.check import check, require_complete
from scheduler.pipeline.plan.communication import with_messages
from scheduler.pipeline.plan.ir import (
    Binding,
    Edge,
    Link,
    LowRank,
    Order,
    Pipeline,
    Plan,
    Stage,
    StageCost,
    WeightRule,
    Worker,
)
from scheduler.pipeline.plan.layouts import Layout
from scheduler.pipeline.plan.memory import peaks_in_flight


def place(
    layout: Layout,
    costs: Sequence[StageCost],
    workers: Sequence[Worker],
    links: Sequence[Link] = (),
    *,
    shape: tuple[int, ...] = (1,),
    element_bytes: int = 1,
    codec: LowRank | None = None,
) -> Pipeline:
    """Stages on the workers of a layout; every edge carries a tensor of this shape, all in one codec.

    `costs` has one entry for each stage of the layout. Raises InvalidValueError where the parts do not suit each
    other, or two regions with an edge have no link.
    """
    if len(costs) != layout.stages:
        raise InvalidValueError("costs", len(costs), f"one for each of {layout.stages} stages")
    if len(workers) != layout.ranks:
        raise InvalidValueError("workers", len(workers), f"one for each of {layout.ranks} ranks")
    stages = tuple(
        Stage(rank, cost)
        for rank, cost in zip((rank for chain in layout.chains for rank in chain), costs, strict=True)
    )
    edges, first = [], 0
    for chain in layout.chains:
        for source, target in pairwise(range(first, first + len(chain))):
            edges.append(Edge(source, target, shape, element_bytes, codec))
        first += len(chain)
    pipeline = Pipeline(tuple(workers), stages, tuple(edges), tuple(links))
    for edge in edges:
        pipeline.link(stages[edge.source].rank, stages[edge.target].rank)
        pipeline.link(stages[edge.target].rank, stages[edge.source].rank)
    return pipeline


def plan_of(
    pipeline: Pipeline,
    order: Order,
    weight_rule: WeightRule = WeightRule.FLUSH,
    binding: Binding = Binding.STRICT,
) -> Plan:
    """The plan that runs an order. One that has messages keeps them; one that has none gets them.

    Raises InvalidValueError for an order that is not complete, CyclicPlanError for one that would wait forever and
    OutOfMemoryError for one that a stage cannot hold.
    """
    require_complete(pipeline, order)
    bare = all(action.op.computes for actions in order for action in actions)
    actions = with_messages(pipeline, order) if bare else order
    plan = Plan(pipeline, actions, peaks_in_flight(pipeline, order), weight_rule, binding)
    check(plan)
    return plan
