"""Homes and data sets in a replay, found right by the program that shares no code with it."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path

import pytest

from scheduler.policies import MAIN, PolicyConfig
from scheduler.replay.run import run_policies
from scheduler.spec.scenario import load_scenario
from tests.replay_worlds import job, write_scenario

Check = Callable[[Path, Path], list[str]]

DEAR = "[{uri: s3://corpus, size: 200GB, regions: [dear]}]"
CHEAP = "[{uri: s3://corpus, size: 50GB, regions: [cheap]}, {uri: s3://more, size: 1TB}]"
JOBS = (
    job("reads-dear", steps=3000, stages="4..8", elasticity="resize", data=DEAR)
    + job("reads-cheap", "10m", 2000, "2..8", elasticity="resize", data=CHEAP)
    + job("at-home", "20m", 2000, "2..4", elasticity="resize", placement="{home: cheap}", data=DEAR)
    + job("rigid", "30m", 500, 8, placement="{home: dear}", data=CHEAP)
)


def played(folder: Path, policy: str) -> tuple[Path, Path]:
    path = write_scenario(folder, JOBS)
    run_policies(load_scenario(path), [PolicyConfig(policy)], folder / "out", lambda *_: None, processes=1)
    return path, folder / "out" / policy


@pytest.mark.parametrize("policy", MAIN)
def test_what_is_brought_and_where_chains_begin_is_right(policy: str, tmp_path: Path, checker: Check) -> None:
    path, out = played(tmp_path, policy)
    assert checker(path, out) == []
    rows = list(csv.DictReader((out / "links.csv").read_text(encoding="utf-8").splitlines()))
    brought = [(row["job_id"], row["src"], row["dst"]) for row in rows if row["use"] == "data"]
    assert ("at-home", "dear", "cheap") in brought
    assert ("rigid", "cheap", "dear") in brought
    assert len(brought) == len(set(brought)), "nothing is brought to one region twice"


def test_a_set_that_is_not_billed_is_found(tmp_path: Path, checker: Check) -> None:
    path, out = played(tmp_path, "bace")
    links = out / "links.csv"
    lines = links.read_text(encoding="utf-8").splitlines(keepends=True)
    links.write_text("".join(line for line in lines if not line.rstrip().endswith(",data")), encoding="utf-8")
    assert any("data [] brought" in problem for problem in checker(path, out))
