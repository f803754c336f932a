"""A study is told in a document from its rows alone, whatever part of it has been run."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from scheduler.bench.csv_files import write_few_figures
from scheduler.bench.figures import Figures
from scheduler.bench.markdown import BEGIN, END, write_markdown
from scheduler.bench.plan import Run, Selection
from scheduler.bench.report import REPORT, write_report
from scheduler.bench.results import Row
from scheduler.bench.standing import cells_of
from scheduler.bench.worlds import Split
from scheduler.errors import InvalidValueError

FASTER, CHEAPER = 0.8, 0.5
"""What the made-up horizon takes and pays of what everybody else does."""


def figures(run: Run) -> Figures:
    """Everybody is alike but horizon; LDF is half as slow again, the draws differ by a third."""
    if run.entry.label == "bounds":
        return {"jct_strict_s": 500.0, "jct_moldable_s": 600.0, "electricity_at_once_usd": 10.0}
    scale = 1.0 + run.draw % 2 / 3
    own = run.entry.label.startswith("horizon")
    jct_s = 1000.0 * scale * (FASTER if own else 1.5 if run.entry.family == "ldf" else 1.0)
    paid_usd = 80.0 * scale * (CHEAPER if own else 1.0)
    return {
        "jobs": 8,
        "rejected": 0,
        "jct_mean_s": jct_s,
        "jct_p95_s": 2 * jct_s,
        "electricity_usd": paid_usd / 2,
        "egress_usd": paid_usd / 2,
        "paid_usd": paid_usd,
        "offered_load": 0.9,
        "gpu_utilisation": 0.7,
    }


def row_of(run: Run) -> Row:
    told = asdict(run.cell)  # type: ignore[call-overload]  # every cell is a dataclass
    return Row(
        key=run.key,
        grid=run.cell.grid,
        split=run.cell.split.value,
        cell=run.cell.name,
        draw=run.draw,
        policy=run.entry.label,
        parameters={**told, **told.pop("conduct")},
        code="abc",
        wall_s=1.0,
        figures=figures(run),
    )


def rows_of(wanted: Callable[[Run], bool], **selection: object) -> tuple[Row, ...]:
    runs = Selection(split=Split.HELD_OUT, **selection).runs()  # type: ignore[arg-type]
    return tuple(row_of(run) for run in runs if wanted(run))


@pytest.fixture(scope="module")
def rows() -> tuple[Row, ...]:
    """Two draws of the cells that every section asks for, of the policies that it compares."""
    named = {
        "bounds",
        "bace",
        "horizon",
        "ldf",
        "easy",
        "bace-no-path",
        "horizon@0.9",
        "horizon:own-schedule",
    }
    cells = re.compile("24 poisson|kalos-x10 list|helios")
    return rows_of(lambda run: run.entry.label in named and bool(cells.match(run.cell.name)), draws=2)


def told(rows: Sequence[Row], folder: Path, base: str = "bace") -> str:
    path = folder / "told.md"
    write_markdown(rows, path, base)
    return path.read_text()


def test_every_section_tells_what_the_rows_say(rows: tuple[Row, ...], tmp_path: Path) -> None:
    document = told(rows, tmp_path)
    assert "| P: 24 jobs | 9 | 18 | −20.0" in document
    assert "| P: strict 1F1B, schedule chosen | 9 | 18 | −20.0" in document
    assert "| R: contended, egress paid | 3 | 6 | −20.0 " in document
    assert "0 of the" in document
    assert re.search(r"\| P: all \| ldf \| 18 \| −46\.7 .*\| −50\.0", document)
    assert "| pathfinder | +52.5 / +20.5 | 0.0 / 0.0 |" in document
    assert "### One region at one price" in document
    assert "| helios | horizon | 2 | −20.0" in document
    assert "| sigma0 | −20.0 / −50.0 (0.0 / 0.0) |" in document
    assert re.search(r"\| P: all \| horizon \| 18 \| \+84\.8 \[\+60\.0, \+113\.3\] ", document)
    assert document.index("### The frontier") < document.index("### horizon against bace\n")


def test_the_reference_can_be_chosen(rows: tuple[Row, ...], tmp_path: Path) -> None:
    document = told(rows, tmp_path, base="ldf")
    assert "| P: 24 jobs | 9 | 18 | −46.7" in document
    assert "over ldf" in (tmp_path / "told.svg").read_text()
    write_report(rows, tmp_path, "ldf")
    assert "over ldf" in (tmp_path / REPORT).read_text()


def test_what_a_part_of_a_study_lacks_is_said(tmp_path: Path) -> None:
    labels = {"bace", "horizon"}
    rows = rows_of(lambda run: run.entry.label in labels, grids=("W",), cells="8 all gpus1", draws=1)
    document = told(rows, tmp_path)
    assert "| W: all | 1 | 1 | −20.0 | −50.0 | −50.0 | −50.0 | – | – |" in document
    section = document.partition("### One region at one price")[2]
    assert section.partition("###")[0].rstrip().endswith("This study has no runs for it.")
    assert "P: all" not in document
    assert not re.search(r"\b(nan|inf|None)\b", document)


def test_a_study_of_nothing_is_told_as_well(tmp_path: Path) -> None:
    failed = replace(rows_of(lambda run: True, grids=("W",), cells="8 all gpus1", draws=1)[0], error="no")
    assert "0 cells, 1 failed" in told([failed], tmp_path)
    assert not (tmp_path / "told.svg").exists()


def test_a_document_keeps_what_is_not_of_the_study(rows: tuple[Row, ...], tmp_path: Path) -> None:
    path = tmp_path / "told.md"
    before = f"# Before\nBetween `{BEGIN}` and `{END}` it is made.\n"
    path.write_text(f"{before}{BEGIN}\nolder\n{END}\nAfter.\n")
    document = told(rows, tmp_path)
    assert document.startswith(f"{before}{BEGIN}\n")
    assert document.endswith(f"{END}\nAfter.\n")
    assert "older" not in document
    assert told(rows, tmp_path) == document
    path.write_text("# Another\n")
    with pytest.raises(InvalidValueError, match="study: begin"):
        told(rows, tmp_path)
    assert path.read_text() == "# Another\n"


def test_the_picture_has_a_panel_a_grid_and_a_curve_where_a_knob_turns(
    rows: tuple[Row, ...], tmp_path: Path
) -> None:
    told(rows, tmp_path)
    tree = ElementTree.parse(tmp_path / "told.svg")  # noqa: S314 - our own
    space = "{http://www.w3.org/2000/svg}"
    titles = [each.text for each in tree.iter(f"{space}text") if each.get("class") == "title"]
    assert titles == ["P: all", "W: all", "R: contended, egress paid", "R: contended, egress free"]
    curves = list(tree.iter(f"{space}polyline"))
    assert {curve.get("stroke") for curve in curves} == {"#e5484d"}
    names = {each.text for each in tree.iter(f"{space}text")}
    assert {"horizon", "bace", "ldf"} <= names
    assert "bace-no-path" not in names


def test_the_small_csv_of_a_whole_study_stays_small(tmp_path: Path) -> None:
    rows = rows_of(lambda run: not run.entry.is_turned, draws=1)
    path = tmp_path / "told.csv"
    write_few_figures(cells_of(rows), path)
    assert path.stat().st_size < 400 * 1024
    with path.open() as file:
        lines = list(csv.DictReader(file))
    assert len(lines) == len({(row.grid, row.cell, row.policy) for row in rows if row.policy != "bounds"})
    own = next(line for line in lines if line["policy"] == "horizon")
    assert float(own["paid_usd"]) == pytest.approx(CHEAPER * 80, rel=0.4)
