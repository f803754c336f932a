"""Grid S: how much worse policies become where jobs and policies know the world less well.

Declared steps are the actual ones × bias × log-normal(0, σ): σ from 0 to 1, and every job telling half to three times
of what it does. And a wrong model: GPUs a fifth slower or faster than policies believe, links that carry three tenths
less or more than was granted, and a tenth of all starts straggling. Everything else is known as usual; on one cell of
grid P, one of grid W and one contended cell of grid R.
"""

from __future__ import annotations

from dataclasses import replace

from scheduler.bench.paper import PaperCell
from scheduler.bench.real import RealCell
from scheduler.bench.wan import WanCell
from scheduler.bench.worlds import USUAL, Cell, Conduct, Split

_SIGMAS = (0.0, 0.25, 0.5, 0.75, 1.0)
_BIASES = (0.5, 2.0, 3.0)
_MFUS = (0.8, 1.2)
_CARRIED = (0.7, 1.3)
_STRAGGLERS = 0.1


def sweep_cells(split: Split) -> tuple[Cell, ...]:
    """The three cells under every conduct of the sweep."""
    paper = [PaperCell(split, 24, "poisson", conduct=conduct, grid="S") for conduct in _sweep()]
    wan = [WanCell(split, 24, "poisson", conduct=conduct, grid="S") for conduct in _sweep()]
    real = [RealCell(split, "kalos-x10", "list", conduct, draws=10, grid="S") for conduct in _sweep()]
    return (*paper, *wan, *real)


def _sweep() -> list[Conduct]:
    return [
        *(replace(USUAL, sigma=sigma) for sigma in _SIGMAS),
        *(replace(USUAL, bias=bias) for bias in _BIASES),
        *(replace(USUAL, mfu=mfu) for mfu in _MFUS),
        *(replace(USUAL, carried=carried) for carried in _CARRIED),
        replace(USUAL, stragglers=_STRAGGLERS),
    ]
