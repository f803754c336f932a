"""Grid S: how much worse policies become where jobs know their own length less well.

Declared steps are the actual ones × bias × log-normal(0, σ): σ from 0 to 1, and every job telling half to three times
of what it does. On one cell of grid P and one contended cell of grid R.
"""

from __future__ import annotations

from dataclasses import replace

from scheduler.bench.paper import PaperCell
from scheduler.bench.real import RealCell
from scheduler.bench.worlds import USUAL, Cell, Split

_SIGMAS = (0.0, 0.25, 0.5, 0.75, 1.0)
_BIASES = (0.5, 2.0, 3.0)


def sweep_cells(split: Split) -> tuple[Cell, ...]:
    """Both cells under every σ without bias, and under every bias with the usual σ."""
    estimates = [replace(USUAL, sigma=sigma) for sigma in _SIGMAS]
    estimates += [replace(USUAL, bias=bias) for bias in _BIASES]
    paper = [PaperCell(split, 24, "poisson", conduct=conduct, grid="S") for conduct in estimates]
    real = [RealCell(split, "kalos-x10", "list", conduct, draws=10, grid="S") for conduct in estimates]
    return (*paper, *real)
