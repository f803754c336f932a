"""What the paper found that can be looked at here: the ablation of BACE-Pipe, and the paradox of crossing regions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from scheduler.bench.comparison import against
from scheduler.bench.frontier import FRONTIER_GROUPS
from scheduler.bench.paper import BANDWIDTHS
from scheduler.bench.section import NONE, Section, Table, change, draws, pair
from scheduler.bench.standing import CellResults

_Groups = Mapping[str, Sequence[CellResults]]

_WHOLE: Final = "bace"
_ABLATIONS: Final = (
    ("priority", "bace-no-priority", "+41.9 / +5.0"),
    ("pathfinder", "bace-no-path", "+52.5 / +20.5"),
    ("Cost-Min", "bace-no-cost", "+4.6 / +13.9"),
)
_ONE_REGION, _CROSSING = "ldf", "cr-ldf"


def ablation(groups: _Groups) -> Section:
    """BACE-Pipe without each of its parts, beside the paper's figures."""
    names = [name for name in FRONTIER_GROUPS if name in groups]
    rows = [
        (part, paper, *(_both(groups[name], policy) for name in names)) for part, policy, paper in _ABLATIONS
    ]
    told = any(cell != NONE for row in rows for cell in row[2:])
    return Section(
        "BACE-Pipe without each of its parts",
        "Against BACE-Pipe itself, JCT / paid in per cent; the paper's figures are JCT / cost.",
        (Table(("without", "the paper", *names), tuple(rows) if told else ()),),
    )


def paradox(groups: _Groups) -> Section:
    """Where crossing regions makes jobs slower than staying in one."""
    names = ["P: all", *(f"P: bandwidth × {scale:g}" for scale in BANDWIDTHS), *FRONTIER_GROUPS[1:]]
    rows = []
    for name in names:
        cells = groups.get(name, ())
        all_of_them = against(cells, _CROSSING, _ONE_REGION, "jct_mean_s")
        each = [against([cell], _CROSSING, _ONE_REGION, "jct_mean_s") for cell in cells]
        known = [ratio for ratio in each if ratio is not None]
        if all_of_them is not None:
            slower = sum(ratio.value > 1 for ratio in known)
            rows.append((name, draws(all_of_them), change(all_of_them), f"{slower} of {len(known)}"))
    return Section(
        "The paradox of crossing regions",
        "Mean JCT of CR-LDF against LDF in per cent, over cells in which neither rejects a job; above 0 the paradox "
        "is there.",
        (Table(("cells", "draws", "JCT", "cells with the paradox"), tuple(rows)),),
    )


def _both(cells: Sequence[CellResults], policy: str) -> str:
    return pair(
        against(cells, policy, _WHOLE, "jct_mean_s"),
        against(cells, policy, _WHOLE, "paid_usd"),
    )
