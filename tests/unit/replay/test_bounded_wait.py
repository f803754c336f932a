"""A gang that wants most of the cluster starts, though small jobs without end would fill every GPU that frees."""

from __future__ import annotations

from pathlib import Path

import pytest

from scheduler.policies import PolicyConfig
from scheduler.policies.horizon.config import HorizonConfig
from scheduler.replay.engine import replay
from scheduler.replay.records import JobRow, ReplayResult
from scheduler.replay.workload import jobs_of
from scheduler.spec.scenario import load_scenario
from tests.replay_worlds import job

ONE_REGION = """\
start: 2026-01-01T00:00:00Z
gpus:
  G: {tflops: 100, mfu: 0.5, memory: 80GB, power_w: 400, idle_w: 100}
regions:
  - {name: one, gpus: {G: 10}, price: {usd_per_kwh: 0.1}}
links: []
jobs:
"""
SMALL_JOBS = 400
EVERY_S = 60
"""Twice as many of them come as ten GPUs can run."""


def played(folder: Path, policy: str, elasticity: str) -> ReplayResult:
    small = (
        job(f"s{n:03d}", f"{n * EVERY_S}s", 200, "1..1", "gpt-3-1.3b", elasticity=elasticity)
        for n in range(SMALL_JOBS)
    )
    gang = job("gang", "600s", 2000, "8..8", "gpt-3-1.3b", elasticity=elasticity)
    path = folder / "scenario.yaml"
    path.write_text(ONE_REGION + "".join(small) + gang)
    scenario = load_scenario(path)
    return replay(scenario, jobs_of(scenario), PolicyConfig(name=policy))


def wait_s(row: JobRow) -> float:
    assert row.first_start_s is not None
    return row.first_start_s - row.submit_s


@pytest.mark.parametrize("elasticity", ["none", "resize"])
def test_under_easy_the_gang_waits_no_longer_than_those_that_ran_when_it_came(
    tmp_path: Path, elasticity: str
) -> None:
    result = played(tmp_path, "easy", elasticity)
    gang = next(row for row in result.jobs if row.job_id == "gang")
    longest_s = max(row.end_s - row.start_s for row in result.allocations if row.job_id != "gang")
    assert wait_s(gang) <= longest_s


def test_under_fifo_that_skips_it_waits_for_the_end_of_the_stream(tmp_path: Path) -> None:
    gang = next(row for row in played(tmp_path, "fifo", "none").jobs if row.job_id == "gang")
    assert wait_s(gang) > SMALL_JOBS * EVERY_S


def test_under_horizon_it_starts_once_it_has_waited_some_times_as_long_as_it_runs(tmp_path: Path) -> None:
    result = played(tmp_path, "horizon", "none")
    gang = next(row for row in result.jobs if row.job_id == "gang")
    (ran,) = (row.end_s - row.start_s for row in result.allocations if row.job_id == "gang")
    longest_s = max(row.end_s - row.start_s for row in result.allocations if row.job_id != "gang")
    config = HorizonConfig()
    patience_s = max(config.patience_s, config.patience_runs * ran)
    assert wait_s(gang) <= (config.drains_after + 1) * patience_s + longest_s + EVERY_S
    assert wait_s(gang) < SMALL_JOBS * EVERY_S
