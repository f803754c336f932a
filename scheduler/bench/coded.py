"""`python -m scheduler.bench.coded`: grid W with and without a codec of the cuts.

The same jobs on the same clusters, with `parallelism.codec` at hidden / D for each divisor D. What a codec does to the
loss is no part of it: every job takes the steps that it takes without.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from scheduler.bench.entries import Entry, entries_of
from scheduler.bench.figures import Figures, figures_of
from scheduler.bench.pairs import Estimate, Values, ratio
from scheduler.bench.section import Section, Table, change, draws, markdown_of
from scheduler.bench.sources import Sources
from scheduler.bench.wan import WanCell, wan_cells
from scheduler.bench.worlds import USUAL, Split, World
from scheduler.errors import InvalidValueError
from scheduler.pipeline.plan.ir import LowRank
from scheduler.replay.engine import replay
from scheduler.replay.jobs import ReplayJob

FIGURES: Final = ("jct_mean_s", "electricity_usd", "egress_usd", "paid_usd")
UNCODED: Final = 1

Results = Mapping[tuple[str, int], Mapping[str, Mapping[int, Figures]]]
"""(policy, divisor) -> cell -> draw -> its figures."""


def coded_world(world: World, divisor: int) -> World:
    """The world with a codec of rank hidden / divisor on every job; as it is for the divisor 1."""
    if divisor == UNCODED:
        return world
    return replace(world, jobs=tuple(_coded(job, divisor) for job in world.jobs))


def run(
    cells: Sequence[WanCell], count: int, entries: Sequence[Entry], divisors: Sequence[int], sources: Sources
) -> Iterator[tuple[WanCell, int, Entry, int, Figures]]:
    """(cell, draw, policy, divisor, figures) of so many draws of each cell, draw by draw."""
    for draw in range(count):
        for cell in cells:
            world = cell.world(draw, sources)
            for entry in entries:
                for divisor in divisors:
                    if entry.config is None:
                        raise InvalidValueError("--policies", entry.label, "policies: bounds know no cuts")
                    coded = coded_world(world, divisor)
                    yield (
                        cell,
                        draw,
                        entry,
                        divisor,
                        figures_of(coded, replay(coded.scenario, coded.jobs, entry.config)),
                    )


def section(results: Results) -> Section:
    """Every policy and divisor against the same policy without a codec."""
    rows = []
    for (policy, divisor), cells in results.items():
        if divisor == UNCODED:
            continue
        plain = results[policy, UNCODED]
        changes = [_against(cells, plain, figure) for figure in FIGURES]
        rows.append((policy, str(divisor), draws(changes[0]), *map(change, changes)))
    head = ("policy", "hidden / rank", "draws", "JCT", "electricity", "egress", "paid")
    text = "Changes in per cent against the same policy without a codec, with 95 % intervals."
    return Section("W with a codec of the cuts", text, (Table(head, tuple(rows)),))


def _coded(job: ReplayJob, divisor: int) -> ReplayJob:
    codec = LowRank(max(1, job.spec.model.hidden // divisor))
    return replace(job, spec=replace(job.spec, parallelism=replace(job.spec.parallelism, codec=codec)))


def _against(
    cells: Mapping[str, Mapping[int, Figures]], base: Mapping[str, Mapping[int, Figures]], figure: str
) -> Estimate | None:
    return ratio([(_values(drawn, figure), _values(base[cell], figure)) for cell, drawn in cells.items()])


def _values(drawn: Mapping[int, Figures], figure: str) -> Values:
    return {draw: value for draw, figures in drawn.items() if (value := figures[figure]) is not None}


def main() -> None:
    """Print a line of JSON a run, and at the end the table."""
    parser = argparse.ArgumentParser(prog="python -m scheduler.bench.coded", description=__doc__)
    parser.add_argument("--cells", default="16 * gpus1", help="shell-style pattern over the cells of W")
    parser.add_argument("--draws", type=int, default=3, help="of each cell")
    parser.add_argument("--policies", default="bace,horizon")
    parser.add_argument("--divisors", default="8,32", help="hidden / rank; 1, no codec, always runs")
    asked = parser.parse_args()
    sources = Sources(Path(os.environ["BACE_DATA_DIR"]))
    cells = [
        cell
        for cell in wan_cells(Split.TUNING)
        if cell.conduct == USUAL and fnmatchcase(cell.name, asked.cells)
    ]
    divisors = [UNCODED, *(int(each) for each in asked.divisors.split(","))]
    entries = entries_of(asked.policies.split(","))
    results: dict[tuple[str, int], dict[str, dict[int, Figures]]] = {}
    for cell, draw, entry, divisor, figures in run(cells, asked.draws, entries, divisors, sources):
        results.setdefault((entry.label, divisor), {}).setdefault(cell.name, {})[draw] = figures
        told = {"cell": cell.name, "draw": draw, "policy": entry.label, "divisor": divisor}
        print(json.dumps(told | {name: figures[name] for name in ("jobs", "rejected", *FIGURES)}), flush=True)
    print(markdown_of(section(results)))


if __name__ == "__main__":
    main()
