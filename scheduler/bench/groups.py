"""Which cells are told of together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from scheduler.bench.paper import BANDWIDTHS, GPU_SCALES, JOB_COUNTS
from scheduler.bench.paper_jobs import ARRIVALS
from scheduler.bench.real import BACKBONES, WORKLOADS
from scheduler.bench.standing import RIGID, STRICT, USUAL_JOBS, CellResults

EGRESS: Final = {"list": "egress paid", "owned": "egress free"}
"""How groups call the two kinds of backbone."""

CONTENTIONS: Final = ("idle", "moderate", "contended")

_Holds = Callable[[CellResults], bool]


def groups_of(cells: Sequence[CellResults]) -> dict[str, tuple[CellResults, ...]]:
    """Cells by what they have in common, in the order of the report. A cell is in several groups; those of the grids
    that ask one question each are alone."""
    found = {name: tuple(cell for cell in cells if holds(cell)) for name, holds in _groups()}
    alone = {f"{cell.grid}: {cell.cell}": (cell,) for cell in cells if cell.grid in ("O", "S")}
    return {name: members for name, members in {**found, **alone}.items() if members}


def real_group(contention: str, backbone: str = "list") -> str:
    """The name of the group of grid R with that contention and backbone."""
    return f"R: {contention}, {EGRESS[backbone]}"


def _groups() -> Iterator[tuple[str, _Holds]]:
    for grid in ("P", "W"):
        usual = {"grid": grid, "kind": USUAL_JOBS}
        yield f"{grid}: all", _where(**usual)
        yield from ((f"{grid}: {count} jobs", _where(**usual, jobs=count)) for count in JOB_COUNTS[::-1])
        yield from ((f"{grid}: GPUs × {scale:g}", _where(**usual, gpus=scale)) for scale in GPU_SCALES)
        if grid == "P":
            for scale in BANDWIDTHS:
                yield f"{grid}: bandwidth × {scale:g}", _where(**usual, bandwidth=scale)
        yield from ((f"{grid}: arrivals {name}", _where(**usual, arrivals=name)) for name in ARRIVALS)
        yield from ((f"{grid}: {kind}", _where(grid=grid, kind=kind)) for kind in (STRICT, RIGID))
    for contention in (*CONTENTIONS, "overloaded"):
        here = {"grid": "R", "contention": contention}
        usual = {**here, "kind": USUAL_JOBS}
        for backbone in BACKBONES:
            name = real_group(contention, backbone)
            yield name, _where(**usual, backbone=backbone, faults=False)
            yield f"{name}, faults", _where(**usual, backbone=backbone, faults=True)
        yield from ((f"R: {contention}, {kind}", _where(**here, kind=kind)) for kind in (STRICT, RIGID))
    for workload in WORKLOADS:
        for backbone in BACKBONES:
            here = {"grid": "R", "kind": USUAL_JOBS, "workload": workload, "backbone": backbone}
            yield f"R: {workload}, {EGRESS[backbone]}", _where(**here, faults=False)


def _where(**wanted: Any) -> _Holds:
    """Cells of which all this is true."""
    return lambda cell: all(_fact(cell, name) == value for name, value in wanted.items())


def _fact(cell: CellResults, name: str) -> object:
    return getattr(cell, name) if name in ("grid", "kind", "contention") else cell.parameters.get(name)
