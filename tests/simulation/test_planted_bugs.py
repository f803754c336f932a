"""The rules can be broken: each planted bug is caught within a hundred seeds."""

from __future__ import annotations

import pytest

from tests.simulation.planted import PLANTED
from tests.simulation.run import Plan, run

SEEDS = 100
SECONDS = 60.0
AGENTS = 10


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_is_caught(name: str) -> None:
    for seed in range(1, SEEDS + 1):
        with PLANTED[name]():
            outcome = run(Plan(seed, SECONDS, AGENTS))
        if outcome.violations:
            return
    pytest.fail(f"{SEEDS} seeds did not show that somebody could {name}")
