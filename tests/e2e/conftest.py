"""A world of real processes for every test that asks for one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.world import World, lived_in


@pytest.fixture
def world(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[World]:
    """A server that knows three regions, their links and prices; no agent yet. Settings by indirect parameter."""
    yield from lived_in(World(tmp_path, getattr(request, "param", {})))
