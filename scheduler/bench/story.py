"""All that the report tells beside the frontier, in its order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from scheduler.bench.distances import from_bounds
from scheduler.bench.headline import against_base, everybody, worse
from scheduler.bench.paper_claims import ablation, paradox
from scheduler.bench.rivals import against_baselines, against_named
from scheduler.bench.section import Section
from scheduler.bench.side_figures import other_figures
from scheduler.bench.side_grids import one_region, sweeps
from scheduler.bench.standing import CellResults


def sections_of(
    cells: Sequence[CellResults], groups: Mapping[str, Sequence[CellResults]], base: str
) -> tuple[Section, ...]:
    """Every section, whether or not the study has runs for it."""
    return (
        against_base(groups, base),
        worse(cells, base),
        everybody(groups, base),
        against_named(groups),
        against_baselines(groups),
        from_bounds(groups, base),
        ablation(groups),
        paradox(groups),
        one_region(cells),
        sweeps(cells, base),
        other_figures(groups, base),
    )
