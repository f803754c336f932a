"""What one run of the benchmark does with its world."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from scheduler.bench.entries import entry_of
from scheduler.bench.execute import prepare
from scheduler.bench.paper import PaperCell
from scheduler.bench.plan import Run
from scheduler.bench.sources import Sources
from scheduler.bench.worlds import USUAL, Split
from scheduler.job import Schedule

pytestmark = pytest.mark.shared_data


def test_whoever_chooses_the_schedule_does_with_strict_1f1b_as_with_slack(data_dir: Path) -> None:
    execute = prepare(Sources(data_dir))

    def jct_s(schedule: Schedule, label: str) -> float | None:
        cell = PaperCell(Split.TUNING, 8, "all", conduct=replace(USUAL, schedule=schedule))
        return execute(Run(cell, 0, entry_of(label)), lambda news: None).figures["jct_mean_s"]

    slack_s, strict_s = (jct_s(each, "bace") for each in (Schedule.SLACK_1F1B, Schedule.ONE_F_ONE_B))
    assert slack_s != strict_s
    assert jct_s(Schedule.SLACK_1F1B, "bace:own-schedule") == slack_s
    assert jct_s(Schedule.ONE_F_ONE_B, "bace:own-schedule") == slack_s
