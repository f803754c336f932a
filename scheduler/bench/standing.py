"""The rows of a study by cell, policy and draw."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from scheduler.bench.entries import BOUNDS, family_of
from scheduler.bench.pairs import Values
from scheduler.bench.results import Row
from scheduler.bench.worlds import USUAL
from scheduler.policies import POLICIES

USUAL_JOBS: Final = "usual"
STRICT: Final = "strict 1F1B"
RIGID: Final = "rigid jobs"

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

    @property
    def kind(self) -> str:
        """How its jobs train and what may be done to them: as usual, on strict 1F1B, or never stopped."""
        if self.parameters["schedule"] != USUAL.schedule.value:
            return STRICT
        return USUAL_JOBS if self.parameters["elasticity"] == USUAL.elasticity.value else RIGID


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


def policies_of(cells: Iterable[CellResults]) -> tuple[str, ...]:
    """Every policy that has a row, the bounds left out: in the planner's order, those that it no longer has last."""
    names = {name for cell in cells for name in cell.by_policy if name != BOUNDS.label}
    order = {name: index for index, name in enumerate(POLICIES)}
    return tuple(sorted(names, key=lambda name: (order.get(family_of(name), len(order)), name)))
