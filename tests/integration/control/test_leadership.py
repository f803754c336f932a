"""Who may lead and serve: one server a SQLite file, clocks that agree, and no write of a loop without its proof."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

import service.control
from service import readiness
from service.app import create_control_app
from service.control import leader
from service.control.errors import FencedError, WrongClockError
from service.db.claim import sole_server
from service.db.engine import make_engine
from service.db.migrate import upgrade
from service.db.repositories import access
from service.db.scope import EVERYTHING
from service.errors import ConflictError
from service.settings import Settings
from tests.control_world import World


def test_a_second_server_of_one_sqlite_file_is_refused(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'bace.db'}"
    program = (
        "from service.db.claim import sole_server\n"
        "from service.db.engine import make_engine\n"
        f"with sole_server(make_engine({url!r})):\n    pass\n"
    )
    engine = make_engine(url)
    with sole_server(engine):
        second = subprocess.run(
            [sys.executable, "-c", program], check=False, capture_output=True, text=True, timeout=60
        )
        with pytest.raises(ConflictError, match="PostgreSQL"), sole_server(engine):
            pass
    assert second.returncode != 0
    assert f"the process {os.getpid()} serves {tmp_path / 'bace.db'} already" in second.stderr
    with sole_server(engine):
        pass


@pytest.mark.parametrize("role", ["api", "control"])
def test_sqlite_is_served_by_one_process_whole(role: str) -> None:
    with pytest.raises(ValidationError, match="BACE_ROLE"):
        Settings(role=role, database_url="sqlite:///x.db")
    Settings(role=role, database_url="postgresql+psycopg://bace@db/bace")


async def test_a_process_of_the_loops_alone_serves_its_health_and_metrics(world: World) -> None:
    async def nothing() -> None:
        pass

    described = create_control_app(world.services, nothing).openapi()["paths"]
    assert set(described) == {"/healthz", "/readyz", "/metrics"}


@pytest.mark.postgres
async def test_whose_clock_is_wrong_does_not_lead(postgres_url: str) -> None:
    engine = make_engine(postgres_url)
    upgrade(engine)
    world = World(engine)  # its clock stands years away from the database's
    with pytest.raises(WrongClockError, match="ahead of"):
        await leader.check_clock(world.services)
    state = await readiness.check(world.services)
    assert (state.database, state.schema_current, state.clock, state.ready) == (True, True, False, False)
    engine.dispose()


async def test_a_deposed_leader_stores_nothing_and_is_counted(stored_world: World) -> None:
    world = stored_world
    deposed = world.leadership
    world.clock.advance(world.services.settings.leader_lease_s + 1)
    await world.lead("another")
    with pytest.raises(FencedError):
        await deposed.write(lambda session: access.ensure_project(session, "ghost", 0.0))
    with pytest.raises(FencedError):
        await deposed.renew()
    await deposed.resign()
    projects = await world.run(lambda session: access.projects(session, EVERYTHING))
    assert "ghost" not in [project.project for project in projects]
    assert world.services.metrics.registry.get_sample_value("bace_fenced_writes_total") == 2
    await world.leadership.renew()


def test_no_loop_writes_but_under_its_epoch() -> None:
    """`Leadership` proves the epoch in the transaction of the write; nothing else of the loops opens one."""
    found = {
        path.name
        for path in Path(service.control.__path__[0]).glob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and ast.unparse(node).endswith("db.run")
    }
    assert found == {"leader.py"}
