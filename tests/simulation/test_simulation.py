"""A minute of the simulation: whatever goes wrong, the rules hold; and what once broke one does not any more."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from tests.simulation import corpus
from tests.simulation.__main__ import main
from tests.simulation.run import Outcome, Plan, run

BUDGET_S = 15.0
"""Of wall time, for fresh seeds."""
FIRST_SEED = 1
MOST_SEEDS = 30
NO_LONGER_THAN_S = 40.0


def told(outcome: Outcome) -> str:
    """What somebody needs who has to find out."""
    lines = "".join(outcome.last_lines[-20:])
    return f"{json.dumps(outcome.document())}\nmake simulate SEEDS={outcome.plan.seed}:1\n{lines}"


def test_the_rules_hold_whatever_goes_wrong() -> None:
    began_s = time.perf_counter()
    for seed in range(FIRST_SEED, FIRST_SEED + MOST_SEEDS):
        outcome = run(Plan(seed, seconds=NO_LONGER_THAN_S, agents=12))
        assert not outcome.violations, told(outcome)
        assert outcome.faults
        assert outcome.commits > 100
        if time.perf_counter() - began_s > BUDGET_S:
            break


@pytest.mark.parametrize("plan", [pytest.param(plan, id=path.stem) for path, plan in corpus.kept()])
def test_what_once_broke_a_rule_does_not_any_more(plan: Plan) -> None:
    outcome = run(plan)
    assert not outcome.violations, told(outcome)


def test_the_command_prints_a_line_for_each_seed_and_one_for_all_and_goes_on_where_it_was(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["--seeds", "3:2", "--seconds", "5", "--agents", "4", "--out", str(tmp_path / "lines")]
    assert main(command) == 0
    *seeds, whole = map(json.loads, capsys.readouterr().out.splitlines())
    assert [line["seed"] for line in seeds] == [3, 4]
    assert {"seed", "trace_hash", "events", "commits", "faults", "violations"} <= seeds[0].keys()
    assert (whole["seeds"], whole["violations"]) == (2, 0)
    assert whole["simulated_s"] == pytest.approx(sum(line["simulated_s"] for line in seeds), abs=0.2)
    assert whole["sometimes_missed"], "two tiny runs cannot have reached everything"
    assert main(command) == 0
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == [whole], (
        "nothing is run again"
    )
