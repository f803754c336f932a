"""A study runs what is not done yet, and what comes of it keeps to the bounds and can be told."""

from __future__ import annotations

import csv
import multiprocessing
from dataclasses import replace
from pathlib import Path

import pytest

from scheduler.bench.comparison import against, usd_per_job_hour_saved, worse_cells
from scheduler.bench.entries import entries_of
from scheduler.bench.execute import prepare
from scheduler.bench.figures import figures_of
from scheduler.bench.groups import groups_of
from scheduler.bench.marks import bounds_of
from scheduler.bench.paper import PaperCell
from scheduler.bench.plan import Run, Selection
from scheduler.bench.report import FIGURES, REPORT, write_report
from scheduler.bench.results import Results, Row
from scheduler.bench.sources import Sources
from scheduler.bench.standing import CellResults, cells_of
from scheduler.bench.study import OverProcesses, run_study
from scheduler.bench.wan import WanCell
from scheduler.bench.worlds import USUAL, Split
from scheduler.policies import POLICIES, PolicyConfig
from scheduler.replay.engine import replay

pytestmark = [pytest.mark.shared_data, pytest.mark.xdist_group("study")]


@pytest.fixture(scope="module")
def sources(data_dir: Path) -> Sources:
    return Sources(data_dir)


@pytest.fixture(scope="module")
def study(
    sources: Sources, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, tuple[Run, ...], tuple[Row, ...]]:
    folder = tmp_path_factory.mktemp("study")
    entries = entries_of(["bounds", "fifo", "bace"])
    runs = Selection(grids=("W",), entries=entries, fraction=0.012).runs()
    rows = run_study(runs, sources, Results(folder), OverProcesses(2), lambda row: None)
    return folder, runs, rows


def test_every_run_is_done_once_and_no_process_is_left(
    study: tuple[Path, tuple[Run, ...], tuple[Row, ...]], sources: Sources
) -> None:
    folder, runs, rows = study
    assert sorted(row.key for row in rows) == sorted(run.key for run in runs)
    assert not [row.error for row in rows if row.error]
    assert not multiprocessing.active_children()

    seen: list[Row] = []
    again = run_study(runs, sources, Results(folder), OverProcesses(2), seen.append)
    assert not seen
    assert {row.key: row for row in again} == {row.key: row for row in rows}


def test_a_study_whose_time_is_over_begins_nothing_and_goes_on_later(
    study: tuple[Path, tuple[Run, ...], tuple[Row, ...]], sources: Sources, tmp_path: Path
) -> None:
    _, runs, _ = study
    results, answers = Results(tmp_path), iter((True, False))
    few = run_study(runs, sources, results, OverProcesses(1), lambda row: None, lambda: next(answers))
    assert len(few) == 1
    assert few[0].key == runs[0].key
    assert results.rows == few


def test_processes_change_no_figure(
    study: tuple[Path, tuple[Run, ...], tuple[Row, ...]], sources: Sources
) -> None:
    _, runs, rows = study
    run = next(run for run in runs if run.entry.label == "bace")
    here = prepare(sources)(run, lambda news: None)
    there = next(row for row in rows if row.key == run.key)

    def lasting(row: Row) -> dict[str, float | None]:
        return {name: value for name, value in row.figures.items() if not name.startswith("decision_p")}

    assert lasting(here) == lasting(there)


def test_what_the_planner_refuses_is_a_row_that_says_why(sources: Sources) -> None:
    row = prepare(Sources(sources.folder / "not-there"))(
        Run(PaperCell(Split.TUNING, 8, "all"), 0, entries_of(["bace"])[0]), lambda news: None
    )
    assert row.figures == {}
    assert "dtfm_aws_matrix.csv" in (row.error or "")


@pytest.mark.parametrize("policy", list(POLICIES))
@pytest.mark.parametrize("kind", [PaperCell, WanCell])
def test_no_policy_is_below_the_bounds(
    sources: Sources, policy: str, kind: type[PaperCell] | type[WanCell]
) -> None:
    for arrivals in ("all", "poisson"):
        world = kind(Split.TUNING, 8, arrivals).world(1, sources)
        bounds = bounds_of(world)
        result = replay(world.scenario, world.jobs, PolicyConfig(name=policy))
        figures = figures_of(world, result)
        assert figures["rejected"] == 0
        assert _told(bounds["jct_alone_s"]) <= _told(bounds["jct_strict_s"]) <= _told(figures["jct_mean_s"])
        assert _told(bounds["electricity_at_once_usd"]) <= _told(figures["electricity_usd"])
        if all(row.generations == 1 for row in result.jobs):
            assert _told(bounds["jct_moldable_s"]) <= _told(figures["jct_mean_s"])
        assert _told(figures["slowdown_mean"]) >= 1.0


def test_a_world_that_is_faster_than_policies_believe_has_bounds_of_its_own(sources: Sources) -> None:
    conduct = replace(USUAL, mfu=1.2, carried=0.7, stragglers=0.5)
    told = WanCell(Split.TUNING, 8, "all").world(0, sources)
    world = WanCell(Split.TUNING, 8, "all", conduct=conduct).world(0, sources)
    assert world.jobs == told.jobs
    assert world.scenario.cluster == told.scenario.cluster
    alone_s = _told(bounds_of(world)["jct_alone_s"])
    assert alone_s < _told(bounds_of(told)["jct_alone_s"])
    for policy in ("lcf", "horizon"):
        figures = figures_of(world, replay(world.scenario, world.jobs, PolicyConfig(name=policy)))
        assert _told(figures["jct_mean_s"]) >= alone_s
        assert _told(figures["slowdown_mean"]) >= 1.0


def test_only_measured_jobs_count(sources: Sources) -> None:
    world = PaperCell(Split.TUNING, 8, "poisson").world(0, sources)
    result = replay(world.scenario, world.jobs, PolicyConfig(name="bace"))
    late = replace(world, measured_from_s=world.jobs[5].submit_s)
    rows = [row for row in result.jobs if row.submit_s >= world.jobs[5].submit_s]
    figures = figures_of(late, result)
    assert figures["jobs"] == len(rows) == 3
    assert figures["jct_mean_s"] == pytest.approx(sum(row.jct_s or 0 for row in rows) / 3)
    assert figures["electricity_usd"] == pytest.approx(sum(row.electricity_usd for row in rows))


def test_the_report_tells_the_frontier_before_the_tables(
    study: tuple[Path, tuple[Run, ...], tuple[Row, ...]],
) -> None:
    folder, _, rows = study
    write_report(rows, folder)
    page = (folder / REPORT).read_text()
    assert "W: all: paid against mean JCT" in page
    assert page.index('id="figures"') < page.index("<h2>W: all")
    assert "http" not in page[: page.index("<script>")]
    with (folder / FIGURES).open() as file:
        lines = list(csv.DictReader(file))
    cells = cells_of(rows)
    assert len(lines) == sum(len(cell.by_policy) for cell in cells)
    for line in lines:
        cell = next(each for each in cells if each.cell == line["cell"])
        values = cell.values(line["policy"], "jct_mean_s")
        if values:
            assert float(line["jct_mean_s"]) == pytest.approx(sum(values.values()) / len(values), rel=1e-3)


def test_a_cell_in_which_a_policy_rejects_jobs_is_not_compared(
    study: tuple[Path, tuple[Run, ...], tuple[Row, ...]],
) -> None:
    cells = cells_of(study[2])
    rejecting = [cell for cell in cells if cell.rejects("fifo")]
    fair = [cell for cell in cells if not cell.rejects("fifo")]
    assert rejecting
    assert fair
    assert against(rejecting, "fifo", "bace", "jct_mean_s") is None
    assert against(cells, "fifo", "bace", "jct_mean_s") == against(fair, "fifo", "bace", "jct_mean_s")
    assert not worse_cells(cells, "bace", "bace")
    slower = {cell.cell for cell in fair if _told(_ratio(cell)) > 1.01}
    assert {cell.cell for cell in worse_cells(cells, "fifo", "bace")} >= slower
    assert usd_per_job_hour_saved(cells, "bace", "bace") is None  # it saves nothing against itself
    assert set(groups_of(cells)) >= {"W: all"}


def _ratio(cell: CellResults) -> float | None:
    estimate = against([cell], "fifo", "bace", "jct_mean_s")
    return None if estimate is None else estimate.value


def _told(value: float | None) -> float:
    assert value is not None
    return value
