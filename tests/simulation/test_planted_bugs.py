"""The rules can be broken: each planted bug is caught within a hundred seeds."""

from __future__ import annotations

import pytest

from tests.simulation.planted import PLANTED
from tests.simulation.run import Plan, run

SEEDS = 100
SECONDS = 60.0
AGENTS = 10


CAUGHT_LAST_BY = {
    "skip the epoch check": 2,
    "drop the generation check": 8,
    "reuse a GPU before its lease has ended": 14,
    "lose the idempotency record": 1,
    "apply half a gang": 4,
    "start again after a restart": 2,
    "believe late copies of heartbeats": 6,
    "start beyond a quota": 2,
    "leave out a row of the audit log": 1,
    "lose an event of a stream": 2,
}
"""Where it is quickest to begin; any seed may do once the code has changed."""


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_is_caught(name: str) -> None:
    first = CAUGHT_LAST_BY[name]
    for seed in (first, *(seed for seed in range(1, SEEDS + 1) if seed != first)):
        with PLANTED[name]():
            outcome = run(Plan(seed, SECONDS, AGENTS))
        if outcome.violations:
            return
    pytest.fail(f"{SEEDS} seeds did not show that somebody could {name}")
