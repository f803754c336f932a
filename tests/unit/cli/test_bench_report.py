"""`bace bench-report` tells a study from its folder alone, and leaves its results as they are."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from scheduler.bench.results import RESULTS, Results, Row
from service.cli.exits import Exit
from service.cli.main import app

CELL = {"schedule": "slack-1f1b", "elasticity": "resize", "jobs": 8, "arrivals": "all", "gpus": 1.0}


def row(policy: str, jct_s: float) -> Row:
    figures = {"jobs": 8, "rejected": 0, "jct_mean_s": jct_s, "electricity_usd": 2.0, "paid_usd": 3.0}
    return Row(
        policy, "W", "tuning", "8 all gpus1", 0, policy, CELL, "abc", 1.0, {**figures, "egress_usd": 1.0}
    )


@pytest.fixture
def study(tmp_path: Path) -> Path:
    results = Results(tmp_path / "study")
    for policy, jct_s in (("bace", 100.0), ("lcf", 200.0), ("horizon", 80.0)):
        results.add(row(policy, jct_s))
    return tmp_path / "study"


@pytest.mark.parametrize(("against", "told"), [([], 0.8), (["--against", "lcf"], 0.4)])
def test_a_study_is_told_against_the_policy_that_is_asked_for(
    study: Path, against: list[str], told: float
) -> None:
    markdown = study.parent / "told.md"
    with (study / RESULTS).open("a") as file:
        file.write('{"key": "a run that is being wri')
    before = (study / RESULTS).read_bytes()
    command = ["bench-report", "--out", str(study), "--markdown", str(markdown), "-o", "json", *against]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == Exit.OK, result.output
    group = next(each for each in json.loads(result.output)["groups"] if each["group"] == "W: all")
    ratios = {each["policy"]: each["ratios"]["jct_mean_s"]["value"] for each in group["policies"]}
    assert ratios["horizon"] == pytest.approx(told)
    assert (study / RESULTS).read_bytes() == before
    assert {path.name for path in study.parent.glob("told.*")} == {"told.md", "told.svg", "told.csv"}
    assert f"horizon against {'lcf' if against else 'bace'}" in markdown.read_text()


@pytest.mark.parametrize(
    ("options", "told"),
    [(["--out", "nowhere"], "results.jsonl"), (["--against", "fastest"], "bace, horizon")],
)
def test_what_cannot_be_told_is_said(study: Path, options: list[str], told: str) -> None:
    result = CliRunner().invoke(app, ["bench-report", "--out", str(study), *options])
    assert result.exit_code == Exit.USAGE
    assert told in " ".join(result.output.split())
