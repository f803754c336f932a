"""Which runs a study consists of."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Final

from scheduler.bench.entries import BOUNDS, Entry, all_entries
from scheduler.bench.paper import paper_cells
from scheduler.bench.real import RealCell, real_cells
from scheduler.bench.single import single_cells
from scheduler.bench.sweeps import sweep_cells
from scheduler.bench.wan import wan_cells
from scheduler.bench.worlds import USUAL, Cell, Split
from scheduler.errors import InvalidValueError

GRID_VERSION: Final = 1
"""Grows with every change of a grid or a figure that makes earlier results another thing."""

_FRONTIER: Final = ("P", "W", "R")
_DRAWS_WITH_KNOBS: Final = 5
_ROUNDING: Final = 1e-9

GRIDS: Final[Mapping[str, Callable[[Split], Sequence[Cell]]]] = MappingProxyType(
    {"P": paper_cells, "W": wan_cells, "R": real_cells, "O": single_cells, "S": sweep_cells}
)
"""Every grid by its letter."""


@dataclass(frozen=True, slots=True)
class Run:
    """One entry on one draw of a cell."""

    cell: Cell
    draw: int
    entry: Entry

    @property
    def key(self) -> str:
        """A digest of all that decides the result but the code."""
        cell, entry = self.cell, self.entry
        parts = (
            str(GRID_VERSION),
            cell.grid,
            cell.split.value,
            cell.name,
            str(self.draw),
            entry.label,
            entry.settings,
        )
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Selection:
    """A part of all runs: some grids, the cells whose name fits a shell-style pattern, one split, some entries (None:
    all), so many draws of each cell at most, and of what is left an even fraction over all cells."""

    grids: tuple[str, ...] = tuple(GRIDS)
    cells: str = "*"
    split: Split = Split.TUNING
    entries: tuple[Entry, ...] | None = None
    draws: int | None = None
    fraction: float = 1.0

    def __post_init__(self) -> None:
        for name in self.grids:
            if name not in GRIDS:
                raise InvalidValueError("--grid", name, f"some of {', '.join(GRIDS)}")
        if not 0.0 < self.fraction <= 1.0:
            raise InvalidValueError("--fraction", self.fraction, "a part above 0, at most 1")

    def runs(self) -> tuple[Run, ...]:
        """The runs, in the order in which they say most about all of it, wherever they are stopped.

        In the first turn every cell has a draw, in each following one another. Of each turn all grids come evenly
        mixed, and the runs of a world together. What is more than the comparison of the policies as they are, with
        jobs that behave as usual, comes in every second or third turn only (`_turn`).
        """
        ordered = sorted(self._placed(), key=lambda each: each[:2])
        return tuple(run for _, _, run in ordered)

    def _placed(self) -> Iterator[tuple[int, float, Run]]:
        """(turn, place in it, run) of every run."""
        wanted, position = 0.0, 0
        for grid in self.grids:
            cells = [cell for cell in GRIDS[grid](self.split) if fnmatchcase(cell.name, self.cells)]
            for cell, place in zip(cells, _places(cells), strict=True):
                draws = min(cell.draws, self.draws or cell.draws)
                before, wanted = wanted, wanted + draws * self.fraction
                count = math.ceil(wanted - _ROUNDING) - math.ceil(before - _ROUNDING)
                for index in range(count):
                    # another draw in every cell, or a small part would know one cluster alone
                    draw = (position + index * draws // count) % draws
                    for entry in self._entries(cell, index):
                        yield _turn(cell, index, entry), place, Run(cell, draw, entry)
                position += 1

    def _entries(self, cell: Cell, index: int) -> Sequence[Entry]:
        """Bounds are taken under the usual conduct alone, knobs turned in so many draws of the frontier's cells, and
        schedules chosen where the cell has another than would be chosen."""
        if self.entries is not None:
            return self.entries
        turns_knobs = index < _DRAWS_WITH_KNOBS and _is_of_frontier(cell)
        return [
            entry
            for entry in all_entries()
            if (entry != BOUNDS or cell.conduct == USUAL)
            and (turns_knobs or not entry.is_turned)
            and (cell.conduct.schedule is not USUAL.schedule or not entry.chooses_schedule)
        ]


def _places(cells: Sequence[Cell]) -> list[float]:
    """How far each cell is through those of its grid that come in the same turns."""
    size, seen = Counter(cell.conduct == USUAL for cell in cells), Counter[bool]()
    places = []
    for cell in cells:
        usual = cell.conduct == USUAL
        places.append(seen[usual] / size[usual])
        seen[usual] += 1
    return places


def _is_of_frontier(cell: Cell) -> bool:
    fails = isinstance(cell, RealCell) and cell.faults
    return cell.grid in _FRONTIER and cell.conduct == USUAL and not fails


def _turn(cell: Cell, index: int, entry: Entry) -> int:
    """When the run of a cell's draw with that index comes; other conducts half as often, and entries by their rank."""
    return (index + 1) * entry.rank * (1 if cell.conduct == USUAL else 2)
