"""A minute of chaos on each database: nothing is lost, nothing is there twice, nothing runs that should not."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from tests.chaos.run import Plan, run
from tests.conftest import missing

pytestmark = [
    pytest.mark.chaos,
    pytest.mark.e2e,
    pytest.mark.xdist_group("chaos"),
    pytest.mark.timeout(900),
]
MINUTES = 1.0


@pytest.mark.parametrize(
    "database",
    ["sqlite", pytest.param("postgres", marks=[pytest.mark.postgres, pytest.mark.redis])],
)
def test_whatever_dies_or_sleeps_the_promises_are_kept(database: str, tmp_path: Path) -> None:
    postgres_url = os.environ.get("BACE_TEST_POSTGRES_URL", "")
    if database == "postgres" and not postgres_url:
        missing("BACE_TEST_POSTGRES_URL is not set: no PostgreSQL to test on")
    if database == "postgres" and shutil.which("redis-server") is None:
        missing("no redis-server on the PATH: none of the run's own can be killed")
    outcome = run(Plan(MINUTES, database, seed=1, postgres_url=postgres_url), tmp_path / "chaos")
    print(outcome.line())
    assert outcome.verdict.violations() == {}
    figures = json.loads(outcome.line())
    assert figures["finished"] >= 3
    assert figures["faults_total"] >= 10
    assert figures["workers"] >= figures["finished"]
