"""Which runs a study consists of."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Final

from scheduler.bench.entries import BOUNDS, Entry, all_entries
from scheduler.bench.paper import paper_cells
from scheduler.bench.real import real_cells
from scheduler.bench.single import single_cells
from scheduler.bench.sweeps import sweep_cells
from scheduler.bench.wan import wan_cells
from scheduler.bench.worlds import USUAL, Cell, Split
from scheduler.errors import InvalidValueError

GRID_VERSION: Final = 1
"""Grows with every change of a grid or a figure that makes earlier results another thing."""

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
        """The runs: first draws first, so that a study that is not done yet has something of every cell; all entries
        of a world together, so that there is something to compare."""
        worlds = sorted(self._worlds(), key=lambda world: world[1])
        return tuple(Run(cell, draw, entry) for cell, draw in worlds for entry in self._entries(cell, draw))

    def _worlds(self) -> Iterator[tuple[Cell, int]]:
        wanted = 0.0
        cells = [
            cell
            for grid in self.grids
            for cell in GRIDS[grid](self.split)
            if fnmatchcase(cell.name, self.cells)
        ]
        for position, cell in enumerate(cells):
            draws = min(cell.draws, self.draws or cell.draws)
            before, wanted = wanted, wanted + draws * self.fraction
            count = math.ceil(wanted - _ROUNDING) - math.ceil(before - _ROUNDING)
            for index in range(count):
                # another draw in every cell, or a small part would know one cluster alone
                yield cell, (position + index * draws // count) % draws

    def _entries(self, cell: Cell, draw: int) -> Sequence[Entry]:
        """Knobs are turned, and bounds are taken, under the usual conduct alone; knobs in the first draws."""
        if self.entries is not None:
            return self.entries
        usual = cell.conduct == USUAL
        return [
            entry
            for entry in all_entries()
            if (entry.label == entry.family and (usual or entry != BOUNDS))
            or (usual and draw < _DRAWS_WITH_KNOBS)
        ]
