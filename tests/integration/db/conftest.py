"""Both databases, each empty and each test's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine

from service.db import migrate
from service.db.engine import make_engine


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def empty(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    """An engine on a database without tables."""
    on_file = f"sqlite:///{tmp_path / 'bace.db'}"
    engine = make_engine(on_file if request.param == "sqlite" else request.getfixturevalue("postgres_url"))
    yield engine
    engine.dispose()


@pytest.fixture
def engine(empty: Engine) -> Engine:
    """An engine on a database of the newest schema."""
    migrate.upgrade(empty)
    return empty
