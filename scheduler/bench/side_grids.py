"""The grids that ask one question each: one region at one price (O), and what is known of the world (S)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from scheduler.bench.comparison import against
from scheduler.bench.headline import OWN
from scheduler.bench.pairs import Estimate, ratio
from scheduler.bench.section import NONE, Section, Table, change, draws, pair
from scheduler.bench.standing import CellResults, policies_of
from scheduler.bench.worlds import USUAL, Conduct

_EASY: Final = "easy"
_IN_ONE_REGION: Final = ("jct_mean_s", "jct_p95_s", "slowdown_mean", "gang_wait_mean_s", "paid_usd")
_KNOWN: Final = ("sigma", "bias", "mfu", "carried", "stragglers")
_WORLDS: Final = ("P", "W", "R")


def one_region(cells: Sequence[CellResults]) -> Section:
    """Everybody against EASY backfill, where there is no choice of region or hour."""
    rows = [
        (cell.cell, policy, draws(ratios[0]), *map(change, ratios))
        for cell in cells
        if cell.grid == "O"
        for policy in policies_of([cell])
        if policy != _EASY
        for ratios in [[against([cell], policy, _EASY, figure) for figure in _IN_ONE_REGION]]
        if ratios[0] is not None
    ]
    head = ("cell", "policy", "draws", "JCT", "p95 JCT", "slowdown", "wait of gangs", "paid")
    return Section(
        "One region at one price, against EASY backfill",
        "Changes in per cent. The rigid cells are where EASY backfill is at home: the stages that jobs name, and "
        "nobody is "
        "stopped.",
        (Table(head, tuple(rows)),),
    )


def sweeps(cells: Sequence[CellResults], base: str) -> Section:
    """horizon where less is known, against the base under the same and against itself as usual."""
    found = {(_conduct(cell), _world(cell)): cell for cell in cells if cell.grid == "S"}
    conducts = sorted({conduct for conduct, _ in found}, key=_departure)
    rows = [
        (conduct.name.strip() or "as usual", *(_told(found, conduct, world, base) for world in _WORLDS))
        for conduct in conducts
    ]
    told = any(cell != NONE for row in rows for cell in row[1:])
    return Section(
        "What is known",
        f"{OWN} against {base} under the same, JCT / paid in per cent, and in brackets against itself as usual: 24 "
        f"Poisson "
        "jobs of P and of W, and Kalos × 10. `sigma` and `bias` are of declared steps, `mfu` and `carried` what GPUs "
        "and "
        "links do of what policies believe, `stragglers` the part of all starts that takes half as long again.",
        (Table(("conduct", "P", "W", "R, Kalos × 10"), tuple(rows) if told else ()),),
    )


def _told(found: dict[tuple[Conduct, str], CellResults], conduct: Conduct, world: str, base: str) -> str:
    cell, usual = found.get((conduct, world)), found.get((USUAL, world))
    if cell is None:
        return NONE
    over_base = pair(*(against([cell], OWN, base, figure) for figure in ("jct_mean_s", "paid_usd")))
    if usual is None or conduct == USUAL or over_base == NONE:
        return over_base
    itself = pair(*(_over_usual(cell, usual, figure) for figure in ("jct_mean_s", "paid_usd")))
    return f"{over_base} ({itself})"


def _over_usual(cell: CellResults, usual: CellResults, figure: str) -> Estimate | None:
    return ratio([(cell.values(OWN, figure), usual.values(OWN, figure))])


def _conduct(cell: CellResults) -> Conduct:
    """What its jobs and policies know; how they train is the same in all of the grid."""
    sigma, bias, mfu, carried, stragglers = (float(cell.parameters[name]) for name in _KNOWN)
    return Conduct(sigma=sigma, bias=bias, mfu=mfu, carried=carried, stragglers=stragglers)


def _world(cell: CellResults) -> str:
    """The grid that the cell is taken from."""
    if "workload" in cell.parameters:
        return "R"
    return "P" if "bandwidth" in cell.parameters else "W"


def _departure(conduct: Conduct) -> tuple[float, ...]:
    """The usual conduct first, then by what differs from it."""
    return tuple(
        value if value != usual else -1.0
        for value, usual in ((getattr(conduct, name), getattr(USUAL, name)) for name in reversed(_KNOWN))
    )
