"""Plans for tests: equal stages under published layouts, with a delay on every hop or on the cuts between regions."""

from __future__ import annotations

import math

from scheduler.pipeline.plan.ir import Link, Order, Pipeline, Plan, StageCost, Worker
from scheduler.pipeline.plan.layouts import Layout, line
from scheduler.pipeline.plan.passes import place, plan_of

UNIT = StageCost(1.0, 1.0, 1.0, inflight_bytes=1.0, pending_bytes=1.0)
"""F = I = W = 1 s; a micro-batch holds one byte from its forward to the gradient of its weights."""


def links_between(regions: list[str], latency_s: float, transfer_s: float = 0.0) -> list[Link]:
    """The same link between every two regions, on which a byte takes `transfer_s`."""
    bandwidth_bps = 8 / transfer_s if transfer_s else math.inf
    names = sorted(set(regions))
    return [Link(one, other, latency_s, bandwidth_bps) for one in names for other in names if one != other]


def pipeline_of(
    layout: Layout, cost: StageCost, regions: list[str], links: list[Link], memory_bytes: float = math.inf
) -> Pipeline:
    """Each rank's work, equal on all of them, is cut into as many equal stages as stand on it."""
    chunks = layout.stages // layout.ranks
    workers = [Worker(region, memory_bytes) for region in regions]
    return place(layout, [cost.chunk(chunks)] * layout.stages, workers, links)


def every_hop(layout: Layout, order: Order, latency_s: float, cost: StageCost = UNIT) -> Plan:
    """Every rank in a region of its own, the same latency between any two."""
    regions = [f"r{rank:02}" for rank in range(layout.ranks)]
    return plan_of(pipeline_of(layout, cost, regions, links_between(regions, latency_s)), order)


def together(layout: Layout, order: Order, cost: StageCost = UNIT, memory_bytes: float = math.inf) -> Plan:
    """Every rank in one region."""
    return plan_of(pipeline_of(layout, cost, ["here"] * layout.ranks, [], memory_bytes), order)


def chain_pipeline(
    costs: list[StageCost], cuts: dict[int, tuple[float, float]], memory_bytes: float = math.inf
) -> Pipeline:
    """A line whose `cuts` map a boundary to its (latency, transfer), both ways; a region between any two cuts."""
    region_of, region = [], 0
    for stage in range(len(costs)):
        region_of.append(f"r{region:02}")
        region += stage in cuts
    links = []
    for cut, (latency_s, transfer_s) in cuts.items():
        here, there = region_of[cut], region_of[cut + 1]
        bandwidth_bps = 8 / transfer_s if transfer_s else math.inf
        links += [Link(here, there, latency_s, bandwidth_bps), Link(there, here, latency_s, bandwidth_bps)]
    return place(line(len(costs)), costs, [Worker(each, memory_bytes) for each in region_of], links)
