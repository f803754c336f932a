"""Whatever a policy does within the rules, nothing is double-booked, no step is lost or done twice, and every bill can
be recomputed."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from scheduler.policies import PolicyConfig
from scheduler.replay.run import run_policies
from scheduler.replay.workload import jobs_of
from scheduler.spec.scenario import load_scenario
from tests.replay_worlds import job, write_scenario
from tests.restless import Restless, registered

SEEDS = 12
THREE_REGIONS = Path(__file__).parents[3] / "deploy/examples/scenarios/three-regions.yaml"
Check = Callable[[Path, Path], list[str]]


def jobs_from(dice: random.Random) -> str:
    """Eight jobs of two sizes, rigid and elastic, that declare other steps than they do."""
    return "".join(
        job(
            f"j{index}",
            f"{dice.randint(0, 7200)}s",
            dice.randint(20, 1500),
            preset=dice.choice(["llama-2-7b", "gpt-3-1.3b"]),
            elasticity=dice.choice(["resize", "resize", "restart", "none"]),
            actual_steps=dice.randint(20, 1500),
        )
        for index in range(8)
    )


FAULTS = (
    "restart: {checkpoint_every: 5m}\n"
    "faults: {generator: {mean_between: 90m, mean_repair: 20m}, seed: SEED, cool_down: 10m}\n"
)


TRUTH = "truth: {mfu: 0.8, bandwidth: 0.7, stragglers: {share: 0.3, slowdown: 1.5, seed: SEED}}\n"


@pytest.mark.parametrize("more", ["", FAULTS, FAULTS + TRUTH], ids=["calm", "faults", "untold"])
@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_restless_policy_leaves_files_in_which_all_is_right(
    seed: int, more: str, tmp_path: Path, checker: Check, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = registered(monkeypatch, Restless())
    text = jobs_from(random.Random(seed)) + more.replace("SEED", str(seed))
    path = write_scenario(tmp_path, text, [100.0, -50.0, 200.0] * 200)
    scenario = load_scenario(path)
    (summary,) = run_policies(
        scenario, [PolicyConfig(name=name, seed=seed)], tmp_path / "out", lambda *_: None, processes=1
    )
    assert checker(path, tmp_path / "out" / name) == []
    assert summary["jobs"]["by_state"] == {"succeeded": 8}
    assert summary["steps"] == sum(each.actual_steps for each in jobs_of(scenario))
    assert (summary["faults"]["jobs_hit"] > 0) == bool(more)


def test_restlessness_reaches_every_kind_of_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = registered(monkeypatch, Restless())
    scenario = load_scenario(THREE_REGIONS)
    (summary,) = run_policies(
        scenario, [PolicyConfig(name=name, seed=1)], tmp_path / "out", lambda *_: None, processes=1
    )
    assert summary["preemptions"] > 20
    assert summary["migrations"] > 20
    assert summary["generations"] > summary["jobs"]["total"] + 40
    rows = (tmp_path / "out" / name / "allocations.csv").read_text().splitlines()
    cells = [dict(zip(rows[0].split(","), row.split(","), strict=True)) for row in rows[1:]]
    cut_short = [row for row in cells if row["steps"] == "0" and float(row["stop_s"]) == 0]
    assert cut_short, "no job was stopped before its first step"
    assert any(float(row["stop_s"]) > 0 for row in cells)


@pytest.mark.parametrize("seed", range(4))
def test_where_models_are_not_known_to_the_checker_all_else_is_right(
    seed: int, tmp_path: Path, checker: Check, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = registered(monkeypatch, Restless())
    told = "faults: {generator: {mean_between: 20h, mean_repair: 1h}, seed: SEED}\n"
    path = tmp_path / "regions.yaml"
    path.write_text(THREE_REGIONS.read_text() + (told + TRUTH).replace("SEED", str(seed)))
    config = PolicyConfig(name=name, seed=seed)
    run_policies(load_scenario(path), [config], tmp_path / "out", lambda *_: None, processes=1)
    assert checker(path, tmp_path / "out" / name) == []


def test_the_same_seed_gives_the_same_replay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = registered(monkeypatch, Restless())
    scenario = load_scenario(THREE_REGIONS)
    for folder in ("one", "two"):
        config = PolicyConfig(name=name, seed=3)
        run_policies(scenario, [config], tmp_path / folder, lambda *_: None, processes=1)
    for file in ("jobs.csv", "allocations.csv", "links.csv"):
        one, two = (tmp_path / folder / name / file for folder in ("one", "two"))
        assert one.read_bytes() == two.read_bytes()


@pytest.mark.parametrize(
    ("file", "column", "factor", "told"),
    [
        ("allocations.csv", "restart_s", 1.01, "restart_s"),
        ("allocations.csv", "stop_s", 1.01, "stop_s"),
        ("links.csv", "bytes", 1.01, "bytes of"),
        ("links.csv", "end_s", 0.99, "arrival of state"),
        ("jobs.csv", "migrations", 2, "migrations"),
    ],
)
def test_a_planted_error_in_a_restart_is_found(
    file: str,
    column: str,
    factor: float,
    told: str,
    tmp_path: Path,
    checker: Check,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = registered(monkeypatch, Restless())
    path = write_scenario(tmp_path, jobs_from(random.Random(0)), [100.0, -50.0, 200.0] * 200)
    scenario = load_scenario(path)
    run_policies(scenario, [PolicyConfig(name=name, seed=0)], tmp_path / "out", lambda *_: None, processes=1)
    target = tmp_path / "out" / name / file
    header, *lines = target.read_text().splitlines()
    at, use = header.split(",").index(column), header.split(",").index("use") if "links" in file else None
    for number, line in enumerate(lines):
        cells = line.split(",")
        if float(cells[at]) > 0 and (use is None or cells[use] == "state"):
            cells[at] = (
                repr(float(cells[at]) * factor) if isinstance(factor, float) else str(int(cells[at]) * factor)
            )
            lines[number] = ",".join(cells)
            break
    target.write_text("\n".join([header, *lines]) + "\n")
    assert any(told in problem for problem in checker(path, tmp_path / "out" / name))
