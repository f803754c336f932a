"""Worlds: in memory for most, and on both databases where the database has a part in the promise."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from service.db.engine import make_engine
from tests.control_world import World


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
