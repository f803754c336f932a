"""What a cluster is to be good at, as `bace replay` and the settings of a server take it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import ValidationError
from typer.testing import CliRunner

from scheduler.objective import Objective
from service.cli import replay
from service.cli.exits import Exit
from service.cli.main import app
from service.policy import policy_of
from service.settings import Settings


@pytest.mark.parametrize(
    ("arguments", "told", "objective"),
    [
        ([], Objective(), Objective()),
        (["--objective", "0.2"], Objective(), Objective(0.2)),
        ([], Objective(0.3, 0.1), Objective(0.3, 0.1)),
        (["--objective", "0.2"], Objective(0.3, 0.1), Objective(0.2)),
        (["--cheapest-within", "0.05"], Objective(0.3, 0.1), Objective(0.3, 0.05)),
    ],
)
def test_a_replay_is_told_the_objective_or_takes_that_of_the_scenario(
    arguments: list[str],
    told: Objective,
    objective: Objective,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    asked: list[Any] = []

    def run_policies(_scenario: object, configs: list[Any], *_rest: object) -> list[Any]:
        asked.extend(configs)
        return []

    monkeypatch.setattr(replay, "run_policies", run_policies)
    monkeypatch.setattr(replay, "load_scenario", lambda _: SimpleNamespace(objective=told))
    monkeypatch.chdir(tmp_path)
    command = ["replay", "x.yaml", "--policy", "bace,horizon", "-o", "json", *arguments]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == Exit.OK, result.output
    assert [(config.name, config.objective) for config in asked] == [
        ("bace", objective),
        ("horizon", objective),
    ]


@pytest.mark.parametrize(("name", "value"), [("--objective", "1.1"), ("--cheapest-within", "-1")])
def test_what_is_no_objective_is_refused(name: str, value: str) -> None:
    assert CliRunner().invoke(app, ["replay", "x.yaml", name, value]).exit_code == Exit.USAGE


def test_a_server_takes_its_policy_and_objective_from_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in (
        ("POLICY", "horizon"),
        ("OBJECTIVE_WEIGHT_JCT", "0.3"),
        ("OBJECTIVE_CHEAPEST_WITHIN", "0.05"),
        ("SEED", "7"),
    ):
        monkeypatch.setenv(f"BACE_{name}", value)
    config = policy_of(Settings())
    assert (config.name, config.seed, config.objective) == ("horizon", 7, Objective(0.3, 0.05))
    monkeypatch.setenv("BACE_OBJECTIVE_WEIGHT_JCT", "2")
    with pytest.raises(ValidationError):
        Settings()
