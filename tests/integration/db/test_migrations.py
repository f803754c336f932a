"""Migrations lead to the tables of `tables.py` and back, on both databases, also from an installed package."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Engine, inspect, text

from service.db import migrate
from service.db.engine import make_engine
from service.db.repositories import leader
from service.db.tables import Base
from service.db.transaction import Mode, transact
from service.errors import ConflictError
from service.server import migrate_database, prepare_database
from service.settings import Settings


def _difference(engine: Engine) -> list[object]:
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        return list(compare_metadata(context, Base.metadata))


def test_migrations_and_tables_agree(engine: Engine) -> None:
    assert _difference(engine) == []


def test_constraints_of_the_tables_are_in_the_migrations(engine: Engine) -> None:
    # The comparison above does not look at CHECKs.
    inspector = inspect(engine)
    for name, table in Base.metadata.tables.items():
        wanted = {c.name for c in table.constraints if type(c).__name__ == "CheckConstraint" and c.name}
        there = {c["name"] for c in inspector.get_check_constraints(name)}
        assert wanted <= there, name


def test_down_and_up_again_leaves_nothing_and_then_everything(engine: Engine) -> None:
    migrate.downgrade(engine, migrate.BASE)
    assert set(inspect(engine).get_table_names()) <= {"alembic_version"}
    migrate.upgrade(engine)
    assert _difference(engine) == []
    found, _ = transact(engine, Mode.READ, leader.get)
    assert (found.epoch, found.holder) == (0, "")


def test_upgrading_again_changes_nothing(engine: Engine) -> None:
    migrate.upgrade(engine)
    with engine.connect() as connection:
        assert migrate.current(connection) == migrate.head()


def test_an_empty_database_is_prepared_and_an_unknown_schema_is_refused(empty: Engine) -> None:
    prepare_database(empty)
    assert _difference(empty) == []
    with empty.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(ConflictError, match="9999"):
        prepare_database(empty)


def test_migrations_are_found_wherever_the_package_lies(tmp_path: Path) -> None:
    program = (
        "from service.server import migrate_database; from service.settings import Settings; "
        "print(migrate_database(Settings()))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={"BACE_HOME": str(tmp_path), "PATH": "", "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == migrate.head()
    with make_engine(f"sqlite:///{tmp_path / 'bace.db'}").connect() as connection:
        assert migrate.current(connection) == migrate.head()
    connection.engine.dispose()


def test_migrate_answers_the_revision(tmp_path: Path) -> None:
    assert migrate_database(Settings(home=tmp_path / "new")) == migrate.head()
