"""The results file survives what interrupts a study."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from scheduler.bench.results import RESULTS, Results, Row
from scheduler.errors import InvalidValueError

ROW = Row(
    "k1", "P", "tuning", "8 all", 0, "bace", {"jobs": 8}, "abc", 1.5, {"jct_mean_s": 2.25, "gangs": None}
)


def test_rows_read_back_as_they_were_written(tmp_path: Path) -> None:
    results = Results(tmp_path / "new")
    results.add(ROW)
    results.add(replace(ROW, key="k2", figures={}, error="no"))
    again = Results(tmp_path / "new")
    assert again.rows == results.rows
    assert again.done() == {"k1"}


def test_a_failed_run_is_done_once_it_succeeds(tmp_path: Path) -> None:
    results = Results(tmp_path)
    results.add(replace(ROW, figures={}, error="no"))
    results.add(ROW)
    assert Results(tmp_path).rows == (ROW,)


def test_a_line_cut_short_is_dropped_and_the_file_goes_on(tmp_path: Path) -> None:
    Results(tmp_path).add(ROW)
    path = tmp_path / RESULTS
    path.write_bytes(path.read_bytes() + b'{"key": "k2", "gri')
    results = Results(tmp_path)
    assert results.rows == (ROW,)
    results.add(replace(ROW, key="k3"))
    assert [row.key for row in Results(tmp_path).rows] == ["k1", "k3"]


@pytest.mark.parametrize("line", ["{}", "nonsense", '{"key": 1}'])
def test_another_file_is_refused_with_its_line(tmp_path: Path, line: str) -> None:
    Results(tmp_path).add(ROW)
    path = tmp_path / RESULTS
    path.write_text(path.read_text() + line + "\n")
    with pytest.raises(InvalidValueError, match=f"{RESULTS}:2"):
        Results(tmp_path)
