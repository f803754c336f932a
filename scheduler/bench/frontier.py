"""The frontier: what is paid against completion time, one curve a policy as its knob turns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from scheduler.bench.comparison import against, bound_over
from scheduler.bench.entries import family_of, knob_of
from scheduler.bench.groups import real_group
from scheduler.bench.pairs import Estimate
from scheduler.bench.standing import CellResults, policies_of

FRONTIER_GROUPS: Final = (
    "P: all",
    "W: all",
    real_group("contended"),
    real_group("moderate"),
    real_group("idle"),
    real_group("contended", "owned"),
    real_group("moderate", "owned"),
)
_BOUNDS: Final = {"strict bound": "jct_strict_s", "moldable bound": "jct_moldable_s"}


@dataclass(frozen=True, slots=True)
class Point:
    """A policy at one setting of its knob: both figures over the base."""

    label: str
    jct: Estimate
    paid: Estimate


@dataclass(frozen=True, slots=True)
class Curve:
    """A policy, its knob turned from cheap to fast."""

    family: str
    points: tuple[Point, ...]


@dataclass(frozen=True, slots=True)
class Frontier:
    """All policies in one group of cells, and the capacity bounds of completion time over the base."""

    group: str
    curves: tuple[Curve, ...]
    bounds: Mapping[str, float]


def frontiers_of(groups: Mapping[str, Sequence[CellResults]], base: str) -> tuple[Frontier, ...]:
    """One for each of the great groups in which anything can be compared."""
    found = (_frontier(name, groups[name], base) for name in FRONTIER_GROUPS if name in groups)
    return tuple(frontier for frontier in found if frontier.curves)


def _frontier(name: str, cells: Sequence[CellResults], base: str) -> Frontier:
    curves: dict[str, list[Point]] = {}
    for policy in policies_of(cells):
        jct, paid = (against(cells, policy, base, figure) for figure in ("jct_mean_s", "paid_usd"))
        if jct is not None and paid is not None:
            curves.setdefault(family_of(policy), []).append(Point(policy, jct, paid))
    bounds = {title: bound_over(cells, figure, base, "jct_mean_s") for title, figure in _BOUNDS.items()}
    return Frontier(
        name,
        tuple(
            Curve(family, tuple(sorted(points, key=lambda point: knob_of(point.label))))
            for family, points in curves.items()
        ),
        {title: bound.value for title, bound in bounds.items() if bound is not None},
    )
