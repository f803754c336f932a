"""`python -m scheduler.bench.orders.proofs`: the exact twin on pipelines whose shortest order is known."""

from __future__ import annotations

import argparse
import csv
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from scheduler.pipeline.plan.exact import best_order
from scheduler.pipeline.plan.generate import generate
from scheduler.pipeline.plan.ir import Link, Pipeline, StageCost, Worker
from scheduler.pipeline.plan.layouts import line
from scheduler.pipeline.plan.passes import place
from scheduler.pipeline.plan.search import polished, search

FORWARD, INPUT, WEIGHT = 76.0, 93.0, 41.0
"""Of every stage, in the table's ticks; here a tick is a second."""
STEPS = 12_500
"""Of search a round, for each micro-batch: seconds of a processor, after which the proof is short."""


class Case(NamedTuple):
    """A row of the table. Memory is in micro-batches, freed by I (D there) or by W; `shortest` in ticks."""

    name: str
    freed_at: str
    pipeline: Pipeline
    micro_batches: int
    shortest: int


def cases(table: Path) -> Iterator[Case]:
    """The rows."""
    with table.open(encoding="utf-8", newline="") as lines:
        for row in csv.DictReader(each for each in lines if not each.startswith("#")):
            stages, cuts = int(row["stages"]), set(map(int, row["cuts"].split("|")))
            cost = StageCost(FORWARD, INPUT, WEIGHT, 0, 0, 1.0, 1.0 if row["freed_at"] == "W" else 0.0)
            regions = [f"r{sum(cut < stage for cut in cuts)}" for stage in range(stages)]
            bandwidth_bps = 8 / float(row["bw"]) if float(row["bw"]) else math.inf
            names = sorted(set(regions))
            links = [Link(a, b, float(row["lat"]), bandwidth_bps) for a in names for b in names if a != b]
            workers = [Worker(region, float(row["cap"])) for region in regions]
            pipeline = place(line(stages), [cost] * stages, workers, links)
            name, micro_batches, shortest = ",".join(row.values()), row["micro_batches"], row["optimum"]
            yield Case(name, row["freed_at"], pipeline, int(micro_batches), int(shortest))


def main() -> None:
    """Print for each row what comes of each over the shortest, and the time of the last two."""
    parser = argparse.ArgumentParser(prog="python -m scheduler.bench.orders.proofs", description=__doc__)
    parser.add_argument("table", type=Path, help="optimal_orders.csv")
    parser.add_argument(
        "--limit", type=float, default=30.0, help="seconds of the machine for search and proof"
    )
    asked = parser.parse_args()
    proven = rows = 0
    print("row\trules\tpolished\tsearch\texact\tproven\tseconds")
    for name, _, pipeline, micro_batches, shortest in cases(asked.table):
        rules, short = generate(pipeline, micro_batches), polished(pipeline, micro_batches)
        begun_s = time.monotonic()
        found = search(pipeline, micro_batches, rules, steps=STEPS * micro_batches)
        left_s = max(1.0, asked.limit - (time.monotonic() - begun_s))
        best = best_order(pipeline, micro_batches, found, 1.0, left_s)
        took_s = time.monotonic() - begun_s
        rows, proven = rows + 1, proven + (best.proven and best.makespan_ticks == shortest)
        made_s = (rules.makespan_s, short.makespan_s, found.makespan_s, best.makespan_ticks)
        over = (f"{each / shortest - 1:.2%}" for each in made_s)
        print(name, *over, "yes" if best.proven else "no", f"{took_s:.1f}", sep="\t", flush=True)
    print(f"of {rows} rows {proven} proven, with the known length")


if __name__ == "__main__":
    main()
