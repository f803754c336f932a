"""The summary's figures and what the charts average are what their names say."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest

from scheduler.replay.charts import _lanes, _mean_level
from scheduler.replay.metrics import spread, summary_of
from scheduler.replay.records import AllocationRow
from scheduler.spec.scenario import Scenario
from tests.replay_worlds import job, run


def test_a_spread_interpolates_linearly_and_says_nothing_about_nothing() -> None:
    told = spread([float(value) for value in range(1, 102)])
    assert (told["count"], told["mean"], told["p50"], told["max"]) == (101, 51.0, 51.0, 101.0)
    assert told["p95"] == pytest.approx(96.0)
    assert spread([0.0, 1.0])["p95"] == pytest.approx(0.95)
    assert spread([]) == {"count": 0, "mean": None, "p50": None, "p95": None, "p99": None, "max": None}


def test_the_summary_follows_from_the_rows(make_scenario: Callable[..., Scenario]) -> None:
    scenario = make_scenario(
        job("a", "10s", stages=4) + job("b", "20s", stages=12) + job("huge", stages="30..32")
    )
    result = run(scenario)
    summary = summary_of(scenario, result)
    ran = [row for row in result.jobs if row.finish_s is not None]
    assert summary["jobs"] == {"total": 3, "by_state": {"rejected": 1, "succeeded": 2}}
    assert summary["makespan_s"] == max(row.finish_s or 0 for row in ran) - 10.0
    assert [entry["job_id"] for entry in summary["rejected"]] == ["huge"]
    costs = summary["costs_usd"]
    assert costs["owner_paid"] == costs["electricity"] + costs["egress"]
    assert costs["renter_paid"] == costs["rent"] + costs["egress"]
    assert costs["rent"] > 0
    held = sum(row.gpus * (row.end_s - row.start_s) for row in result.allocations)
    assert summary["gpu_utilisation"]["overall"] == pytest.approx(held / 12 / summary["makespan_s"])
    assert summary["timing"]["decision_s"]["count"] == len(result.decisions.durations_s)


def test_a_mean_level_is_the_area_under_the_intervals_over_each_bin() -> None:
    draw = np.random.default_rng(3)
    starts = draw.uniform(0, 90, 40)
    intervals = [
        (float(s), float(s + d), float(h))
        for s, d, h in zip(starts, draw.uniform(0, 10, 40), draw.integers(1, 9, 40), strict=True)
    ]
    edges = np.linspace(0, 100, 38)
    expected = [
        sum(h * max(0.0, min(e, right) - max(s, left)) for s, e, h in intervals) / (right - left)
        for left, right in pairwise(edges)
    ]
    assert _mean_level(intervals, edges).tolist() == pytest.approx(expected, abs=1e-9)


def test_bars_of_one_lane_never_overlap() -> None:
    draw = np.random.default_rng(4)
    starts = sorted(draw.uniform(0, 50, 60).tolist())
    rows = [
        AllocationRow(str(s), 1, "r", 1, 1, 1.0, 1.0, 1, s, s + float(draw.uniform(1, 9)), 0.0, 0.0, 0)
        for s in starts
    ]
    lanes = _lanes(rows)
    for lane in set(lanes):
        own = [row for row, at in zip(rows, lanes, strict=True) if at == lane]
        assert all(before.end_s <= after.start_s for before, after in pairwise(own))
