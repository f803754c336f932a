"""Jobs in orders over a replay: each runs at the pace of its own plan, and pays for what its plan sends."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path

import pytest

from scheduler.evaluate import evaluate, in_its_order
from scheduler.job import ASKED_SCHEDULES, Schedule
from scheduler.placement import Cut, Segment
from scheduler.policies import PolicyConfig
from scheduler.replay.run import run_policies
from scheduler.replay.workload import jobs_of
from scheduler.spec.scenario import load_scenario
from tests.replay_worlds import write_scenario

Check = Callable[[Path, Path], list[str]]
ORDERED = [each for each in ASKED_SCHEDULES if each.is_ordered or each is Schedule.AUTO]


def line(schedule: Schedule, submit: str) -> str:
    """A job that has to stretch over both regions, of eight GPUs and of four."""
    return (
        f"  - {{name: {schedule}, submit: {submit}, model: {{preset: gpt-3-1.3b}}, parallelism: {{stages: 12}}, "
        f"training: {{steps: 100, micro_batches: 48, schedule: {schedule}}}, elasticity: none}}\n"
    )


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("policy", ["bace", "horizon"])
def test_every_order_runs_as_it_is_planned_and_its_figures_are_right(
    tmp_path: Path, checker: Check, policy: str
) -> None:
    jobs = "".join(line(schedule, f"{number}h") for number, schedule in enumerate(ORDERED))
    path = write_scenario(tmp_path, jobs)
    scenario = load_scenario(path)
    run_policies(scenario, [PolicyConfig(name=policy)], tmp_path / "out", lambda *_: None, processes=1)
    out = tmp_path / "out" / policy
    assert checker(path, out) == []
    specs = {job.spec.name: job.spec for job in jobs_of(scenario)}
    told = {row["job_id"]: row for row in rows(out / "allocations.csv")}
    cuts = {row["job_id"]: row for row in rows(out / "links.csv") if row["use"] == "cut"}
    assert set(told) == set(specs)
    assert set(cuts) == set(specs), "all of them cross"
    for row in rows(out / "jobs.csv"):
        spec = specs[row["job_id"]]
        chain = [part.split(":") for part in row["chain"].split(">")]
        segments = tuple(Segment(region, "G", int(count), 1) for region, count in chain)
        cut = Cut(chain[0][0], chain[1][0], float(cuts[row["job_id"]]["reserved_bps"]), 0.002)
        scored = evaluate(spec, scenario.cluster, segments, (cut,))
        expected = in_its_order(spec, scenario.cluster, scored.placement)
        assert float(told[row["job_id"]]["iteration_s"]) == pytest.approx(expected.iteration_s, rel=1e-9)
        assert expected.placement.order or spec.training.schedule in (Schedule.ZB_H1, Schedule.AUTO)
