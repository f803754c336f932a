"""What the tests of the replay share."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from scheduler.spec.scenario import Scenario
from tests.replay_worlds import scenario_with


@pytest.fixture
def make_scenario(tmp_path: Path) -> Callable[..., Scenario]:
    """Makes a scenario of two regions: jobs (YAML lines), and, if wanted, prices and when they are known."""
    return partial(scenario_with, tmp_path)
