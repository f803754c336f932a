"""`bace replay` and `bace compare` as a user runs them: files whole or not there, and always the same."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from playwright.sync_api import sync_playwright
from typer.testing import CliRunner

from scheduler.policies import POLICIES, PolicyConfig
from scheduler.replay.errors import PricesEndError
from scheduler.replay.run import run_policies
from scheduler.spec.scenario import load_scenario
from service.cli.main import app
from tests.replay_worlds import job, write_scenario

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "deploy/examples/scenarios/three-regions.yaml"
FILES = {"jobs.csv", "allocations.csv", "links.csv", "summary.json", "report.html"}
ROWS = ("jobs.csv", "allocations.csv", "links.csv")

pytestmark = pytest.mark.xdist_group("replay-example")


def silent(policy: str, done: int, total: int, now_s: float) -> None:
    """Nobody watches."""


def without_timing(folder: Path) -> dict[str, object]:
    summary: dict[str, object] = json.loads((folder / "summary.json").read_text())
    del summary["timing"]
    return summary


def test_the_files_are_those_of_the_contract(example_results: Path) -> None:
    assert {path.name for path in example_results.iterdir()} == set(POLICIES)
    for folder in example_results.iterdir():
        assert {path.name for path in folder.iterdir()} == FILES
    headers = {
        name: (example_results / "bace" / name).read_text().splitlines()[0].split(",") for name in ROWS
    }
    assert headers == {
        "jobs.csv": [
            "job_id", "tenant", "submit_s", "first_start_s", "finish_s", "jct_s", "steps", "chain", "generations",
            "preemptions", "migrations", "energy_kwh", "electricity_usd", "egress_usd", "rent_usd", "state",
            "faults",
        ],
        "allocations.csv": [
            "job_id", "generation", "region", "stages", "gpus", "power_w", "iteration_s", "steps", "start_s", "end_s",
            "restart_s", "stop_s", "steps_lost",
        ],
        "links.csv": [
            "job_id", "generation", "src", "dst", "reserved_bps", "bytes", "usd_per_gb", "start_s", "end_s",
            "use",
        ],
    }  # fmt: skip


def test_floats_are_written_in_full(example_results: Path) -> None:
    with (example_results / "bace" / "jobs.csv").open(newline="") as file:
        cells = [row["finish_s"] for row in csv.DictReader(file)]
    assert all(repr(float(cell)) == cell for cell in cells)
    assert max(len(cell) for cell in cells) > 15


def test_the_result_is_the_same_in_other_processes_and_under_another_hash_seed(
    example_results: Path, tmp_path: Path
) -> None:
    program = (
        "import sys; from service.cli.main import main;"
        f"sys.argv = ['bace', 'replay', {str(EXAMPLE)!r}, '--policy', 'bace,cr-lcf', '--out', 'out',"
        " '--processes', '2']; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONHASHSEED": "12345"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for policy in ("bace", "cr-lcf"):
        ours, theirs = example_results / policy, tmp_path / "out" / policy
        for name in ROWS:
            assert (ours / name).read_bytes() == (theirs / name).read_bytes()
        assert without_timing(ours) == without_timing(theirs)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("start: 2026-01-01T00:00:00Z\nregions: []\n", "scenario.yaml:2: regions"),
        ("regions: [\n", "scenario.yaml:2"),
        ("", "mapping"),
    ],
)
def test_a_bad_scenario_ends_with_2_and_writes_nothing(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "scenario.yaml"
    path.write_text(text)
    result = CliRunner().invoke(app, ["replay", str(path), "--out", str(tmp_path / "out")])
    assert result.exit_code == 2
    assert told in result.output
    assert {entry.name for entry in tmp_path.iterdir()} == {"scenario.yaml"}


def test_an_unknown_policy_ends_with_2_and_names_those_there_are(tmp_path: Path) -> None:
    result = CliRunner().invoke(
        app, ["replay", str(EXAMPLE), "--policy", "best", "--out", str(tmp_path / "out")]
    )
    assert result.exit_code == 2
    assert "'best'" in result.output
    assert "cr-lcf" in result.output
    assert not list(tmp_path.iterdir())


def test_prices_that_end_too_early_end_with_2_and_leave_no_file_of_any_policy(tmp_path: Path) -> None:
    path = write_scenario(tmp_path, job("a", steps=10_000, stages=4), [100.0] * 26)
    result = CliRunner().invoke(
        app, ["replay", str(path), "--policy", "ldf,lcf", "--out", str(tmp_path / "deep/out")]
    )
    assert result.exit_code == 2
    assert "ends at 2026-01-01T02:00:00Z" in result.output
    assert {entry.name for entry in tmp_path.iterdir()} == {"scenario.yaml", "prices.csv"}


def test_a_failure_in_a_further_process_is_told_as_in_the_first(tmp_path: Path) -> None:
    path = write_scenario(tmp_path, job("a", steps=10_000, stages=4), [100.0] * 26)
    configs = [PolicyConfig(name="lcf"), PolicyConfig(name="bace")]
    with pytest.raises(PricesEndError, match=r"prices\.csv, column z"):
        run_policies(load_scenario(path), configs, tmp_path / "out", silent, processes=2)
    assert {entry.name for entry in tmp_path.iterdir()} == {"scenario.yaml", "prices.csv"}


def test_an_earlier_result_is_replaced_and_anything_else_is_not(tmp_path: Path) -> None:
    scenario = load_scenario(write_scenario(tmp_path, job("a")))
    configs = [PolicyConfig(name="fifo")]
    out = tmp_path / "out"
    for _ in range(2):
        run_policies(scenario, configs, out, silent)
        assert {path.name for path in (out / "fifo").iterdir()} == FILES
    assert {path.name for path in out.iterdir()} == {"fifo"}
    (out / "bace").mkdir()
    (out / "bace" / "thesis.txt").write_text("mine")
    result = CliRunner().invoke(app, ["replay", str(scenario.path), "--policy", "bace", "--out", str(out)])
    assert result.exit_code == 2
    assert (out / "bace" / "thesis.txt").read_text() == "mine"


def test_compare_tells_figures_and_ratios_against_the_first(example_results: Path) -> None:
    folders = [str(example_results / name) for name in ("fifo", "bace")]
    result = CliRunner().invoke(app, ["compare", *folders, "-o", "json"])
    assert result.exit_code == 0
    fifo, bace = json.loads(result.stdout)
    assert (fifo["policy"], bace["policy"]) == ("fifo", "bace")
    assert fifo["ratios"]["jct_mean_s"] == 1
    assert bace["ratios"]["makespan_s"] == bace["figures"]["makespan_s"] / fifo["figures"]["makespan_s"]
    assert bace["ratios"]["egress_usd"] is None  # the first sent nothing
    table = CliRunner().invoke(app, ["compare", str(example_results)])
    assert all(name in table.output for name in POLICIES)


def test_a_small_energy_is_not_shown_as_none(tmp_path: Path) -> None:
    folder = tmp_path / "bace"
    folder.mkdir()
    summary = {"scenario": "s", "policy": "bace", "jct_s": {}, "costs_usd": {}, "energy_kwh": 0.0359}
    (folder / "summary.json").write_text(json.dumps(summary))
    result = CliRunner().invoke(app, ["compare", str(folder)])
    assert "0.0359" in result.output


def test_compare_refuses_a_folder_without_a_result(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["compare", str(tmp_path)])
    assert result.exit_code == 2
    assert "summary.json" in result.output


@pytest.mark.browser
def test_the_report_draws_every_chart_without_a_network(example_results: Path, chromium: str) -> None:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_context(offline=True).new_page()
        errors: list[str] = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto((example_results / "bace" / "report.html").as_uri())
        page.wait_for_selector("body[data-ready=yes]", timeout=60_000)
        titles = page.locator(".gtitle").all_text_contents()
        bars = page.locator(".figure").first.locator(".bars .point").count()
        browser.close()
    assert errors == []
    assert titles == [
        "Allocations", "Completion times", "Cost of a job", "GPUs held", "Queue", "Cost by region",
        "Electricity prices",
    ]  # fmt: skip
    with (example_results / "bace" / "allocations.csv").open(newline="") as file:
        assert bars == len(list(csv.DictReader(file)))
