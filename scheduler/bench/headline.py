"""horizon against the base in every group of cells, where it is worse, and everybody else against the base."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from scheduler.bench.comparison import against, bound_over, worse_cells
from scheduler.bench.entries import KNOB_SEPARATOR, OWN_SCHEDULE, VARIANT_SEPARATOR
from scheduler.bench.frontier import FRONTIER_GROUPS
from scheduler.bench.groups import real_group
from scheduler.bench.section import Section, Table, change, draws, pair, point
from scheduler.bench.standing import CellResults, policies_of

OWN: Final = "horizon"
"""The policy that the benchmark is about."""

_CHOOSING: Final = f"{OWN}{VARIANT_SEPARATOR}{OWN_SCHEDULE}"
_GRIDS: Final = ("P", "W", "R")
_MONEY: Final = ("jct_mean_s", "electricity_usd", "egress_usd", "paid_usd")
_GOALS: Final = {
    "P: 24 jobs": "JCT −12, paid −18",
    "P: GPUs × 0.5": "JCT −9, paid −12",
    "W: all": "JCT −8, electricity 0, paid −35",
    real_group("contended"): "JCT −35, electricity −28, egress −65",
    real_group("moderate"): "JCT −35, electricity −28, egress −65",
    real_group("idle"): "JCT within 1, electricity −18",
}
"""What was aimed at against BACE-Pipe, in per cent."""


def against_base(groups: Mapping[str, Sequence[CellResults]], base: str) -> Section:
    """horizon in all groups of the three great grids, with the capacity bounds beside it."""
    rows = []
    for name, cells in groups.items():
        for policy, suffix in ((OWN, ""), (_CHOOSING, ", schedule chosen")):
            ratios = [against(cells, policy, base, figure) for figure in _MONEY]
            if name[0] not in _GRIDS or ratios[0] is None:
                continue
            bounds = (
                bound_over(cells, bound, base, "jct_mean_s") for bound in ("jct_strict_s", "jct_moldable_s")
            )
            goal = _GOALS.get(name, "") if base == "bace" else ""
            figures = (draws(ratios[0]), *map(change, ratios), *map(point, bounds))
            rows.append((f"{name}{suffix}", str(len(cells)), *figures, goal))
    head = ("group", "cells", "draws", "JCT", "electricity", "egress", "paid", "strict", "moldable", "goal")
    return Section(
        f"{OWN} against {base}",
        f"Changes in per cent, with 95 % intervals. `draws` is how many pairs of runs a line is of; `strict` and "
        f"`moldable` "
        f"are the capacity bounds of mean JCT, against {base} too; `goal` is what was aimed at. Without another word "
        "jobs are elastic and run slack 1F1B.",
        (Table(head, tuple(rows)),),
    )


def worse(cells: Sequence[CellResults], base: str) -> Section:
    """The cells in which horizon takes or costs over one per cent more."""
    told = [
        cell for cell in cells if cell.grid in _GRIDS and against([cell], OWN, base, "jct_mean_s") is not None
    ]
    found = worse_cells(told, OWN, base)
    rows = tuple(
        (f"{cell.grid}: {cell.cell}", draws(jct), change(jct), change(paid))
        for cell in found
        for jct, paid in [[against([cell], OWN, base, figure) for figure in ("jct_mean_s", "paid_usd")]]
    )
    return Section(
        f"Cells in which {OWN} is worse than {base}",
        f"By more than 1 % on mean JCT or on what is paid, in the mean over draws: {len(rows)} of the {len(told)} "
        f"cells of "
        "P, W and R that have both.",
        (Table(("cell", "draws", "JCT", "paid"), rows),),
    )


def everybody(groups: Mapping[str, Sequence[CellResults]], base: str) -> Section:
    """All policies as they are in the groups of the frontier."""
    names = [name for name in FRONTIER_GROUPS if name in groups]
    rows = tuple(
        (policy, *cells)
        for policy in policies_of([cell for name in names for cell in groups[name]])
        if policy != base and KNOB_SEPARATOR not in policy
        for cells in [[_both(groups[name], policy, base) for name in names]]
    )
    return Section(
        f"All policies against {base}",
        "JCT / paid, in per cent. Policies of one region are compared only where they reject no job.",
        (Table(("policy", *names), rows if names else ()),),
    )


def _both(cells: Sequence[CellResults], policy: str, base: str) -> str:
    jct, paid = (against(cells, policy, base, figure) for figure in ("jct_mean_s", "paid_usd"))
    return pair(jct, paid)
