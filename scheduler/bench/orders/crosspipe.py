"""CrossPipe's rows of its model M70 (arXiv 2507.00217, Tables 5 and 6), and the best orders found for them."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from scheduler.pipeline.plan import layouts
from scheduler.pipeline.plan.generate import Generated, generate
from scheduler.pipeline.plan.ir import Link, Pipeline, StageCost, Worker
from scheduler.pipeline.plan.layouts import Layout
from scheduler.pipeline.plan.passes import place, plan_of
from scheduler.pipeline.plan.search import search
from scheduler.pipeline.plan.split_orders import zb_v
from scheduler.pipeline.plan.timing import timeline

STAGES = 8
FORWARD_S = 0.038
"""Printed there."""
COST = StageCost(FORWARD_S, 0.0465, 0.0205, inflight_bytes=1.0, pending_bytes=1.0)
"""F + I + W is that of 1F1B's row without delay in case 1, W that of ZB-H1's. Memory in micro-batches, freed by W."""
ROOM = {1: (16, 8), 3: (32, 16)}
"""Of a case: micro-batches, and how many of them a stage can hold."""


@dataclass(frozen=True, slots=True)
class Row:
    """What was measured with CrossPipe's own orders on a line (UD) and on a V (Wave), seconds a micro-batch."""

    case: int
    regions: int
    latency_s: float
    transfer_s: float
    crossud_s: float
    crosswave_s: float


@dataclass(frozen=True, slots=True)
class Found:
    """The best order that the search found on a line and on a V, seconds a micro-batch."""

    line_s: float
    vee_s: float

    @property
    def best_s(self) -> float:
        return min(self.line_s, self.vee_s)


def read_rows(table: Path) -> Iterator[Row]:
    """The rows of the cases that hold every activation (1 and 3). Delays are units of a forward there."""
    with table.open(encoding="utf-8", newline="") as lines:
        for row in csv.DictReader(line for line in lines if not line.startswith("#")):
            if int(row["case"]) in ROOM:
                yield Row(
                    int(row["case"]),
                    int(row["dcs"]),
                    float(row["t_lat"]) * FORWARD_S,
                    float(row["t_bw"]) * FORWARD_S,
                    float(row["crossud"]),
                    float(row["crosswave"]),
                )


def pipeline_on(layout: Layout, row: Row) -> Pipeline:
    """The stages of a row, each cut in as many as stand on its rank, over its regions."""
    regions = [f"dc{rank * row.regions // STAGES}" for rank in range(STAGES)]
    bandwidth_bps = 8 / row.transfer_s if row.transfer_s else math.inf
    names = sorted(set(regions))
    links = [
        Link(one, other, row.latency_s, bandwidth_bps) for one in names for other in names if one != other
    ]
    chunks = layout.stages // STAGES
    workers = [Worker(region, ROOM[row.case][1]) for region in regions]
    return place(layout, [COST.chunk(chunks)] * layout.stages, workers, links)


def best_found(row: Row, rounds: int, steps: int) -> Found:
    """By annealing from the fastest generated order and, on a V, from ZB-V too where it fits."""
    micro_batches, room = ROOM[row.case]
    found = []
    for layout in (layouts.line(STAGES), layouts.vee(STAGES)):
        pipeline = pipeline_on(layout, row)
        starts = [generate(pipeline, micro_batches)]
        if layout.stages > STAGES and room >= STAGES:  # what ZB-V holds
            order = zb_v(STAGES, micro_batches)
            starts.append(Generated(order, timeline(plan_of(pipeline, order)).makespan_s))
        made = [search(pipeline, micro_batches, start, rounds, steps) for start in starts]
        found.append(min(each.makespan_s for each in made) / micro_batches)
    return Found(*found)
