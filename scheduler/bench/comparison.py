"""A policy against another over some cells of a study, on the draws that both have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from scheduler.bench.entries import BOUNDS
from scheduler.bench.pairs import Estimate, ratio, ratio_alone
from scheduler.bench.standing import CellResults

BASE: Final = "bace"
"""The policy that all others are set against where nothing else is asked for."""

_WORSE: Final = 1.01


def against(cells: Sequence[CellResults], policy: str, base: str, figure: str) -> Estimate | None:
    """A figure of a policy over that of the base; cells in which either rejects a job are left out."""
    fair = (cell for cell in cells if not cell.rejects(policy) and not cell.rejects(base))
    return ratio([(cell.values(policy, figure), cell.values(base, figure)) for cell in fair])


def over_bound(cells: Sequence[CellResults], policy: str, figure: str, bound: str) -> Estimate | None:
    """A figure of a policy over a lower bound of it; None where no bounds were taken."""
    fair = (cell for cell in cells if not cell.rejects(policy))
    return ratio([(cell.values(policy, figure), cell.values(BOUNDS.label, bound)) for cell in fair])


def bound_over(cells: Sequence[CellResults], bound: str, base: str, figure: str) -> Estimate | None:
    """A lower bound over what the base came to; None where no bounds were taken."""
    return ratio([(cell.values(BOUNDS.label, bound), cell.values(base, figure)) for cell in cells])


def worse_cells(cells: Sequence[CellResults], policy: str, base: str) -> tuple[CellResults, ...]:
    """The cells in which the policy takes or costs over one per cent more than the base, in the mean."""
    return tuple(
        cell
        for cell in cells
        if not cell.rejects(policy)
        and not cell.rejects(base)
        and any(_is_worse(cell, policy, base, figure) for figure in ("jct_mean_s", "paid_usd"))
    )


def _is_worse(cell: CellResults, policy: str, base: str, figure: str) -> bool:
    found = ratio_alone([(cell.values(policy, figure), cell.values(base, figure))])
    return found is not None and found > _WORSE


def usd_per_job_hour_saved(cells: Sequence[CellResults], policy: str, base: str) -> float | None:
    """What more is paid than under the base for each hour of a job's completion time that is saved; below 0 where it
    saves both, None where it saves no time (or rejects jobs)."""
    paid_usd, saved_s = 0.0, 0.0
    for cell in cells:
        if cell.rejects(policy) or cell.rejects(base):
            continue
        own, other = (_by_draw(cell, name) for name in (policy, base))
        for draw in own.keys() & other.keys():
            paid_usd += own[draw]["paid_usd"] - other[draw]["paid_usd"]
            saved_s += other[draw]["jobs"] * (other[draw]["jct_mean_s"] - own[draw]["jct_mean_s"])
    return paid_usd / (saved_s / 3600.0) if saved_s > 0 else None


def _by_draw(cell: CellResults, policy: str) -> dict[int, dict[str, float]]:
    names = ("paid_usd", "jobs", "jct_mean_s")
    columns = {name: cell.values(policy, name) for name in names}
    return {
        draw: {name: columns[name][draw] for name in names}
        for draw in columns["paid_usd"]
        if all(draw in columns[name] for name in names)
    }
