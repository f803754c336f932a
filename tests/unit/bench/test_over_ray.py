"""A Ray cluster does what the processes of one machine do."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from scheduler.bench.entries import entries_of
from scheduler.bench.plan import Selection
from scheduler.bench.results import Results
from scheduler.bench.sources import Sources
from scheduler.bench.study import OverProcesses, run_study


@pytest.mark.shared_data
@pytest.mark.timeout(240)
# Ray's own modules draw deprecation warnings of the libraries that they use
@pytest.mark.filterwarnings("default")
def test_a_local_cluster_makes_the_same_rows(
    data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ray", reason="the extra ray is not installed")
    from scheduler.bench.over_ray import OverRay

    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    root = str(Path(__file__).parents[3])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([root, os.environ.get("PYTHONPATH", "")]))
    runs = Selection(grids=("W",), entries=entries_of(["fifo", "bace"]), fraction=0.005).runs()
    spreads = {"ray": OverRay(most=2), "processes": OverProcesses(1)}
    figures = {}
    for name, spread in spreads.items():
        rows = run_study(runs, Sources(data_dir), Results(tmp_path / name), spread, lambda row: None)
        assert not [row.error for row in rows if row.error]
        figures[name] = {row.key: row.figures["jct_mean_s"] for row in rows}
    assert figures["ray"] == figures["processes"]
    assert len(figures["ray"]) == len(runs)
