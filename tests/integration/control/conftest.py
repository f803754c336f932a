"""Worlds: in memory for most, and on both databases where the database has a part in the promise."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from service.db.engine import make_engine
from tests.control_script import Scripted
from tests.control_world import World

ASKED_ALWAYS = {"replan_debounce_s": 1e-4, "replan_interval_s": 1e-4}


@pytest.fixture
async def world() -> AsyncIterator[World]:
    """Tables, a leader, nobody else."""
    engine = make_engine("sqlite://")
    world = World(engine)
    await world.start()
    yield world
    engine.dispose()


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
async def stored_world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    """The same on a file and on a PostgreSQL server."""
    on_file = f"sqlite:///{tmp_path / 'bace.db'}"
    engine = make_engine(on_file if request.param == "sqlite" else request.getfixturevalue("postgres_url"))
    world = World(engine)
    await world.start()
    yield world
    engine.dispose()


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Scripted:
    """The policy of `played` and `played_on_both`, until the test says otherwise: nothing is ever decided."""
    scripted = Scripted()
    scripted.register(monkeypatch)
    return scripted


@pytest.fixture
async def played(script: Scripted) -> AsyncIterator[World]:
    """A world whose policy is the test's, and is asked at every round."""
    engine = make_engine("sqlite://")
    world = World(engine, policy=script.name, **ASKED_ALWAYS)
    await world.start()
    yield world
    engine.dispose()


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
async def played_on_both(
    request: pytest.FixtureRequest, script: Scripted, tmp_path: Path
) -> AsyncIterator[World]:
    """The same on a file and on a PostgreSQL server."""
    on_file = f"sqlite:///{tmp_path / 'bace.db'}"
    engine = make_engine(on_file if request.param == "sqlite" else request.getfixturevalue("postgres_url"))
    world = World(engine, policy=script.name, **ASKED_ALWAYS)
    await world.start()
    yield world
    engine.dispose()
