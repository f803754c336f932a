"""A program that shares no code with the project finds every figure of a replay right, and finds planted errors."""

from __future__ import annotations

import ast
import csv
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from scheduler.policies import POLICIES, PolicyConfig
from scheduler.replay.run import run_policies
from scheduler.spec.scenario import load_scenario

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "deploy/examples/scenarios/three-regions.yaml"
Check = Callable[[Path, Path], list[str]]
Rows = list[dict[str, str]]

pytestmark = pytest.mark.xdist_group("replay-example")


def test_the_checker_shares_no_code_with_the_project() -> None:
    tree = ast.parse((ROOT / "tests/replay_checker.py").read_text(encoding="utf-8"))
    imported = {
        name.split(".")[0]
        for node in ast.walk(tree)
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    assert imported <= {
        "__future__", "collections", "csv", "datetime", "gzip", "hashlib", "itertools", "json", "math", "pathlib",
        "sys", "yaml",
    }  # fmt: skip


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_every_policy_on_the_example_is_right(policy: str, example_results: Path, checker: Check) -> None:
    assert checker(EXAMPLE, example_results / policy) == []


@pytest.mark.shared_data
@pytest.mark.xdist_group("replay-kalos")
@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_every_policy_on_the_real_kalos_trace_is_right(
    policy: str, data_dir: Path, tmp_path: Path, checker: Check
) -> None:
    path = data_dir / "scenarios/real12-kalos.yaml"
    out = tmp_path / "out"
    run_policies(load_scenario(path), [PolicyConfig(name=policy)], out, lambda *_: None, processes=1)
    assert checker(path, out / policy) == []


@pytest.mark.shared_data
@pytest.mark.xdist_group("replay-kalos")
@pytest.mark.parametrize("policy", ["fifo", "bace"])
def test_the_real_trace_of_faults_is_survived_and_right(
    policy: str, data_dir: Path, tmp_path: Path, checker: Check
) -> None:
    text = (data_dir / "scenarios/real12-kalos.yaml").read_text().replace("../data", str(data_dir / "data"))
    path = tmp_path / "kalos.yaml"
    trace = data_dir / "data/faults/infinitehbd_fault_trace.json.gz"
    path.write_text(f"{text}faults: {{trace: {trace}, seed: 1, skip: 60d}}\n")
    out = tmp_path / "out"
    (summary,) = run_policies(
        load_scenario(path), [PolicyConfig(name=policy)], out, lambda *_: None, processes=1
    )
    assert checker(path, out / policy) == []
    assert summary["jobs"]["by_state"] == {"succeeded": 319}
    assert summary["faults"]["jobs_hit"] > 10
    assert summary["faults"]["nodes"] > 40


def test_steps_are_those_that_a_listed_job_really_has(
    make_listed: Callable[..., Path], checker: Check
) -> None:
    path = make_listed("steps: 7}, actual_steps: 9")
    out = path.parent / "out"
    run_policies(load_scenario(path), [PolicyConfig(name="bace")], out, lambda *_: None, processes=1)
    assert checker(path, out / "bace") == []
    make_listed("steps: 9}, actual_steps: 7")
    assert checker(path, out / "bace") == ["job a: steps is told as 9, recomputed as 7"]


def edit(path: Path, change: Callable[[Rows], None]) -> None:
    """Changes the rows of a CSV file in place."""
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    change(rows)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0].keys())
        writer.writeheader()
        writer.writerows(rows)


def scale(rows: Rows, column: str, factor: float) -> None:
    row = next(row for row in rows if float(row[column] or 0) > 0)
    row[column] = repr(float(row[column]) * factor)


def one_gpu_more(rows: Rows) -> None:
    row = max(rows, key=lambda row: int(row["gpus"]))
    row["gpus"] = str(int(row["gpus"]) + int(row["stages"]))


def swap_regions(rows: Rows) -> None:
    """Moves every segment of one region to the smallest one: more GPUs than it has."""
    for row in rows:
        if row["region"] == "eu-central-1":
            row["region"] = "eu-west-3"


def overlap(rows: Rows) -> None:
    """Lets all cuts of a link stand at the same time, as if nobody had reserved."""
    for row in rows:
        row["start_s"], row["end_s"] = rows[0]["start_s"], rows[-1]["end_s"]


def tear(rows: Rows) -> None:
    """Ends one region of a gang before the others."""
    keys = [(row["job_id"], row["generation"]) for row in rows]
    row = next(row for row, key in zip(rows, keys, strict=True) if keys.count(key) > 1)
    row["end_s"] = repr(float(row["end_s"]) - 1.0)


@pytest.mark.parametrize(
    ("file", "change", "told"),
    [
        ("jobs.csv", lambda rows: scale(rows, "electricity_usd", 1 + 3e-6), "electricity_usd"),
        ("jobs.csv", lambda rows: scale(rows, "egress_usd", 1 - 3e-6), "egress_usd"),
        ("jobs.csv", lambda rows: scale(rows, "energy_kwh", 1.01), "energy_kwh"),
        ("jobs.csv", lambda rows: rows[0].update(steps=str(int(rows[0]["steps"]) + 1)), "steps"),
        ("jobs.csv", lambda rows: rows[0].update(state="rejected"), "rejected, but it ran"),
        ("jobs.csv", lambda rows: rows[0].update(chain="eu-west-2:1"), "chain"),
        ("jobs.csv", lambda rows: rows.append(dict(rows[0])), "stands twice"),
        ("allocations.csv", lambda rows: scale(rows, "power_w", 1.01), "energy_kwh"),
        ("allocations.csv", lambda rows: scale(rows, "iteration_s", 1.01), "steps × iteration_s"),
        ("allocations.csv", one_gpu_more, "gang broken"),
        ("allocations.csv", swap_regions, "GPUs of eu-west-3"),
        ("allocations.csv", tear, "gang broken: end_s"),
        ("links.csv", lambda rows: [row.update(reserved_bps="26e9") for row in rows], "link "),
        ("links.csv", lambda rows: [row.update(reserved_bps="24e9") for row in rows], "uplink of eu-west-2"),
        ("links.csv", overlap, "gang broken: start_s"),
        ("links.csv", lambda rows: rows.pop(), "gang broken: cuts"),
        ("links.csv", lambda rows: rows[0].update(usd_per_gb="0.01"), "usd_per_gb"),
    ],
)
def test_a_planted_error_is_found(
    file: str,
    change: Callable[[Rows], None],
    told: str,
    example_results: Path,
    tmp_path: Path,
    checker: Check,
) -> None:
    folder = tmp_path / "bace"
    shutil.copytree(example_results / "bace", folder)
    edit(folder / file, change)
    problems = checker(EXAMPLE, folder)
    assert any(told in problem for problem in problems), problems[:5]


def test_a_false_summary_is_found(example_results: Path, tmp_path: Path, checker: Check) -> None:
    folder = tmp_path / "fifo"
    shutil.copytree(example_results / "fifo", folder)
    summary = json.loads((folder / "summary.json").read_text())
    summary["jct_s"]["p95"] *= 1.001
    summary["costs_usd"]["owner_paid"] += 1
    (folder / "summary.json").write_text(json.dumps(summary))
    problems = checker(EXAMPLE, folder)
    assert [problem.split(" is told")[0] for problem in problems] == [
        "summary.json: costs_usd.owner_paid",
        "summary.json: jct_s.p95",
    ]
