"""The rows of a study by cell, policy and draw, and which cells belong together."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from scheduler.bench.entries import BOUNDS, family_of
from scheduler.bench.pairs import Estimate, Values, ratio
from scheduler.bench.results import Row
from scheduler.bench.worlds import USUAL
from scheduler.policies import POLICIES

BASE: Final = "bace"
"""The policy that all others are set against."""

_WORSE: Final = 1.01
_CONTENTION: Final = ((0.3, "idle"), (0.75, "moderate"), (1.0, "contended"))


@dataclass(frozen=True, slots=True)
class CellResults:
    """What there is of one cell."""

    grid: str
    split: str
    cell: str
    parameters: Mapping[str, Any]
    by_policy: Mapping[str, Mapping[int, Mapping[str, float | None]]] = field(default_factory=dict)

    def values(self, policy: str, figure: str) -> Values:
        """A figure of a policy in the draws that have it."""
        draws = self.by_policy.get(policy, {})
        told = ((draw, figures.get(figure)) for draw, figures in draws.items())
        return {draw: float(value) for draw, value in told if value is not None}

    def rejects(self, policy: str) -> bool:
        """Whether the policy told a job that it cannot run: its means are then those of other jobs."""
        return any(self.values(policy, "rejected").values())

    @property
    def load(self) -> float | None:
        """Mean offered load of its draws; None where all jobs come at once."""
        loads = [load for policy in self.by_policy for load in self.values(policy, "offered_load").values()]
        return sum(loads) / len(loads) if loads else None

    @property
    def contention(self) -> str:
        """What its offered load makes of it: idle below 0.3, moderate below 0.75, contended below 1, else overloaded;
        `batch` where all jobs come at once."""
        load = self.load
        if load is None:
            return "batch"
        return next((name for below, name in _CONTENTION if load < below), "overloaded")


def cells_of(rows: Iterable[Row]) -> tuple[CellResults, ...]:
    """All cells that have a row without an error."""
    found: dict[tuple[str, str, str], dict[str, dict[int, Any]]] = defaultdict(lambda: defaultdict(dict))
    parameters: dict[tuple[str, str, str], Mapping[str, Any]] = {}
    for row in rows:
        if row.error is None:
            at = (row.grid, row.split, row.cell)
            found[at][row.policy][row.draw] = row.figures
            parameters[at] = row.parameters
    return tuple(CellResults(*at, parameters[at], by_policy) for at, by_policy in found.items())


def groups_of(cells: Sequence[CellResults]) -> dict[str, tuple[CellResults, ...]]:
    """Cells that are told of together, by what they have in common; a cell is in several groups."""
    groups: dict[str, list[CellResults]] = defaultdict(list)
    for cell in cells:
        for name in _groups(cell):
            groups[name].append(cell)
    return {name: tuple(groups[name]) for name in sorted(groups, key=_natural)}


def policies_of(cells: Iterable[CellResults]) -> tuple[str, ...]:
    """Every policy that has a row, the bounds left out: in the planner's order, those that it no longer has last."""
    names = {name for cell in cells for name in cell.by_policy if name != BOUNDS.label}
    order = {name: index for index, name in enumerate(POLICIES)}
    return tuple(sorted(names, key=lambda name: (order.get(family_of(name), len(order)), name)))


def against_base(cells: Sequence[CellResults], policy: str, figure: str) -> Estimate | None:
    """A figure of a policy over that of the base; cells in which either rejects a job are left out."""
    fair = [cell for cell in cells if not cell.rejects(policy) and not cell.rejects(BASE)]
    return ratio([(cell.values(policy, figure), cell.values(BASE, figure)) for cell in fair])


def bound_against_base(cells: Sequence[CellResults], bound: str, figure: str) -> Estimate | None:
    """A lower bound over what the base came to; None where no bounds were taken."""
    return ratio([(cell.values(BOUNDS.label, bound), cell.values(BASE, figure)) for cell in cells])


def worse_cells(cells: Sequence[CellResults], policy: str) -> tuple[CellResults, ...]:
    """The cells in which the policy takes or costs over one per cent more than the base, in the mean."""
    return tuple(
        cell
        for cell in cells
        for ratios in [[against_base([cell], policy, figure) for figure in ("jct_mean_s", "paid_usd")]]
        if any(each is not None and each.value > _WORSE for each in ratios)
    )


def usd_per_job_hour_saved(cells: Sequence[CellResults], policy: str) -> float | None:
    """What more is paid than under the base for each hour of a job's completion time that is saved; below 0 where it
    saves both, None where it saves no time (or rejects jobs)."""
    paid_usd, saved_s = 0.0, 0.0
    for cell in cells:
        if cell.rejects(policy) or cell.rejects(BASE):
            continue
        own, base = (_by_draw(cell, name) for name in (policy, BASE))
        for draw in own.keys() & base.keys():
            paid_usd += own[draw]["paid_usd"] - base[draw]["paid_usd"]
            saved_s += base[draw]["jobs"] * (base[draw]["jct_mean_s"] - own[draw]["jct_mean_s"])
    return paid_usd / (saved_s / 3600.0) if saved_s > 0 else None


def _by_draw(cell: CellResults, policy: str) -> dict[int, dict[str, float]]:
    names = ("paid_usd", "jobs", "jct_mean_s")
    columns = {name: cell.values(policy, name) for name in names}
    return {
        draw: {name: columns[name][draw] for name in names}
        for draw in columns["paid_usd"]
        if all(draw in columns[name] for name in names)
    }


def _natural(name: str) -> tuple[str, bool, list[tuple[float, str]]]:
    """Sorts by grid, what is of all cells first, and numbers by their size."""
    grid, _, rest = name.partition(": ")
    parts = re.split(r"([0-9]+(?:\.[0-9]+)?)", rest)
    # every second part is a number
    return (
        grid,
        not rest.endswith("all"),
        [(float(p), "") if i % 2 else (0.0, p) for i, p in enumerate(parts)],
    )


def _groups(cell: CellResults) -> list[str]:
    """The groups of a cell; those of another conduct than the usual are one each, by grid."""
    told = cell.parameters
    if told["schedule"] != USUAL.schedule.value:
        return [f"{cell.grid}: {told['schedule']}"]
    if told["elasticity"] != USUAL.elasticity.value:
        return [f"{cell.grid}: elasticity {told['elasticity']}"]
    if told.get("faults"):
        return [f"{cell.grid}: nodes fail"]
    return [f"{cell.grid}: {part}" for part in _PARTS[cell.grid](cell)]


def _of_paper(cell: CellResults) -> list[str]:
    told = cell.parameters
    parts = ["all", f"{told['jobs']} jobs", f"GPUs × {told['gpus']:g}", f"arrivals {told['arrivals']}"]
    return [*parts, f"bandwidth × {told['bandwidth']:g}"] if "bandwidth" in told else parts


def _of_real(cell: CellResults) -> list[str]:
    backbone = "egress paid" if cell.parameters["backbone"] == "list" else "egress free"
    return [
        f"{backbone}, all",
        f"{backbone}, {cell.contention}",
        f"{backbone}, {cell.parameters['workload']}",
    ]


def _of_sweep(cell: CellResults) -> list[str]:
    return [cell.cell]


_PARTS: Final[Mapping[str, Callable[[CellResults], list[str]]]] = {
    "P": _of_paper,
    "W": _of_paper,
    "R": _of_real,
    "S": _of_sweep,
}
