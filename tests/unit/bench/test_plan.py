"""A study consists of what was selected, and a key tells apart what has another result."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from scheduler.bench.entries import BOUNDS, all_entries, entries_of, entry_of
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


def test_policies_of_a_world_come_together_and_every_cell_has_a_draw_before_any_has_two() -> None:
    runs = Selection(grids=("W",), entries=entries_of(["fifo", "bace"])).runs()
    assert [run.entry.label for run in runs[:4]] == ["fifo", "bace", "fifo", "bace"]
    assert (runs[0].cell, runs[0].draw) == (runs[1].cell, runs[1].draw)
    usual = [run.cell.name for run in runs if run.cell.conduct == USUAL and run.entry.label == "bace"]
    cells = len(set(usual))
    assert all(len(set(usual[turn * cells : (turn + 1) * cells])) == cells for turn in range(10))
    assert max(run.draw for run in Selection(grids=("W",), draws=3).runs()) == 2


def test_a_study_that_is_stopped_early_has_something_of_every_grid() -> None:
    runs = Selection(split=Split.HELD_OUT).runs()
    first = [run for run in runs if run.cell.conduct == USUAL and run.entry.label == "horizon"]
    cells = Counter(cell.grid for cell in {run.cell for run in first})
    begun = Counter(run.cell.grid for run in first[: cells.total() // 2])
    assert begun == {grid: pytest.approx(count / 2, abs=2) for grid, count in cells.items()}
    assert len({run.draw for run in first[: cells.total()] if run.cell.grid == "P"}) == 10


def test_usual_conduct_and_policies_as_they_are_come_first() -> None:
    runs = Selection(grids=("W",)).runs()
    first_turn = 18 * len([each for each in all_entries() if each.rank == 1 and not each.chooses_schedule])
    assert {run.entry.rank for run in runs[:first_turn]} == {1}
    assert {run.cell.conduct for run in runs[:first_turn]} == {USUAL}
    assert {run.entry.rank for run in runs} == {1, 2, 3}
    assert entry_of("marginal").rank == 2
    assert entry_of("bace-no-path").rank == 1


def test_knobs_and_bounds_are_for_the_usual_conduct() -> None:
    turned = Counter[str]()
    for run in Selection(grids=("P", "O", "S")).runs():
        if run.cell.conduct != USUAL:
            assert run.entry != BOUNDS
        if run.cell.conduct != USUAL or run.cell.grid != "P":
            assert not run.entry.is_turned
        if run.cell.conduct.schedule is USUAL.schedule:
            assert not run.entry.chooses_schedule
        if run.entry.label == "bace@0.5":
            turned[run.cell.name] += 1
    assert set(turned.values()) == {5}


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
    capped = entry_of("bace@0.5")
    assert capped.config is not None
    assert (capped.family, capped.config.growth) == ("bace", 0.5)
    assert capped.settings == "growth=0.5"
    assert entry.settings


def test_a_label_may_name_a_horizon_without_a_mechanism() -> None:
    entry = entry_of("horizon:no-ejection")
    assert (entry.family, entry.label) == ("horizon:no-ejection", "horizon:no-ejection")
    assert entry.config is not None
    assert (entry.config.name, entry.config.variant) == ("horizon", "no-ejection")
    assert entry.settings != entry_of("horizon").settings
    assert entry_of("horizon:no-ejection@.5").family == "horizon:no-ejection"


def test_a_label_may_leave_the_schedule_of_every_job_to_the_planner() -> None:
    entry = entry_of("horizon:own-schedule")
    assert (entry.family, entry.label, entry.rank) == ("horizon:own-schedule", "horizon:own-schedule", 1)
    assert entry.config == entry_of("horizon").config
    assert (entry.chooses_schedule, entry_of("horizon").chooses_schedule) == (True, False)
    assert entry in all_entries()


@pytest.mark.parametrize(
    "label",
    [
        "best",
        "bace-k0@0.5",
        "bace@2",
        "horizon@",
        "horizon@2",
        "horizon@fast",
        "horizon:no-luck",
        "bace:no-ejection",
    ],
)
def test_what_is_no_label_is_refused(label: str) -> None:
    with pytest.raises(InvalidValueError):
        entry_of(label)


@pytest.mark.parametrize("selection", [{"grids": ("X",)}, {"fraction": 0.0}, {"fraction": 1.5}])
def test_what_cannot_be_selected_is_refused(selection: dict[str, object]) -> None:
    with pytest.raises(InvalidValueError):
        Selection(**selection)  # type: ignore[arg-type]
