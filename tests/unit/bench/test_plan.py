"""A study consists of what was selected, and a key tells apart what has another result."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from scheduler.bench.entries import BOUNDS, entries_of, entry_of
from scheduler.bench.paper import PaperCell
from scheduler.bench.plan import GRIDS, Run, Selection
from scheduler.bench.worlds import USUAL, Split
from scheduler.errors import InvalidValueError
from scheduler.job import Elasticity


def test_no_two_runs_of_all_grids_share_a_key() -> None:
    keys = [run.key for split in Split for run in Selection(split=split).runs()]
    assert len(set(keys)) == len(keys)


def test_a_key_depends_on_all_that_decides_the_result() -> None:
    cell = PaperCell(Split.TUNING, 8, "all")
    run = Run(cell, 0, entry_of("bace"))
    others = [
        replace(run, draw=1),
        replace(run, entry=entry_of("fifo")),
        replace(run, cell=replace(cell, split=Split.HELD_OUT)),
        replace(run, cell=replace(cell, gpus=0.5)),
        replace(run, cell=replace(cell, conduct=replace(USUAL, elasticity=Elasticity.NONE))),
        replace(run, cell=replace(cell, conduct=replace(USUAL, bias=2.0))),
    ]
    assert len({each.key for each in (run, *others)}) == len(others) + 1
    assert Run(PaperCell(Split.TUNING, 8, "all"), 0, entry_of("bace")).key == run.key


def test_a_tenth_takes_a_tenth_of_every_grid_and_not_always_the_same_draw() -> None:
    entries = entries_of(["bace"])
    whole, tenth = (Selection(entries=entries, fraction=part).runs() for part in (1.0, 0.1))
    per_grid, per_grid_of_tenth = (Counter(run.cell.grid for run in runs) for runs in (whole, tenth))
    for grid in GRIDS:
        assert per_grid_of_tenth[grid] == pytest.approx(per_grid[grid] / 10, abs=1)
    paper = [run.draw for run in tenth if run.cell.grid == "P"]
    assert set(paper) == set(range(10))
    assert {run.key for run in tenth} < {run.key for run in whole}


def test_policies_of_a_world_come_together_and_first_draws_first() -> None:
    runs = Selection(grids=("W",), entries=entries_of(["fifo", "bace"])).runs()
    assert [run.entry.label for run in runs[:4]] == ["fifo", "bace", "fifo", "bace"]
    assert runs[0].cell == runs[1].cell
    draws = [run.draw for run in runs]
    assert draws == sorted(draws)
    assert max(run.draw for run in Selection(grids=("W",), draws=3).runs()) == 2


def test_knobs_and_bounds_are_for_the_usual_conduct() -> None:
    for run in Selection(grids=("P",)).runs():
        if run.cell.conduct != USUAL:
            assert run.entry != BOUNDS
        if run.cell.conduct != USUAL or run.draw > 4:
            assert run.entry.label == run.entry.family


def test_cells_are_picked_by_a_pattern() -> None:
    names = {run.cell.name for run in Selection(grids=("R",), cells="kalos-x10 *").runs()}
    assert names
    assert all(name.startswith("kalos-x10 ") for name in names)


def test_a_label_names_a_policy_and_its_knob() -> None:
    entry = entry_of("horizon@0.25")
    assert (entry.family, entry.label) == ("horizon", "horizon@0.25")
    assert entry.config is not None
    assert entry.config.objective.weight_jct == 0.25
    assert entry_of("horizon@.250").label == "horizon@0.25"
    assert entry_of("bace").settings == ""
    assert entry.settings


def test_a_label_may_name_a_horizon_without_a_mechanism() -> None:
    entry = entry_of("horizon:no-ejection")
    assert (entry.family, entry.label) == ("horizon:no-ejection", "horizon:no-ejection")
    assert entry.config is not None
    assert (entry.config.name, entry.config.variant) == ("horizon", "no-ejection")
    assert entry.settings != entry_of("horizon").settings
    assert entry_of("horizon:no-ejection@.5").family == "horizon:no-ejection"


@pytest.mark.parametrize(
    "label",
    ["best", "bace@0.5", "horizon@", "horizon@2", "horizon@fast", "horizon:no-luck", "bace:no-ejection"],
)
def test_what_is_no_label_is_refused(label: str) -> None:
    with pytest.raises(InvalidValueError):
        entry_of(label)


@pytest.mark.parametrize("selection", [{"grids": ("X",)}, {"fraction": 0.0}, {"fraction": 1.5}])
def test_what_cannot_be_selected_is_refused(selection: dict[str, object]) -> None:
    with pytest.raises(InvalidValueError):
        Selection(**selection)  # type: ignore[arg-type]
