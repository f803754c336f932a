"""Brings a database to the newest schema and tells where it is. The revisions are in the package `migrations`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, text

import migrations

_LOCK = 0x6D_6967  # an advisory lock of PostgreSQL; any constant that nobody else uses
BASE = "base"
HEAD = "head"


def upgrade(engine: Engine, revision: str = HEAD) -> None:
    """Runs what is missing, up to `revision`. Of several servers that begin together one does it, the others wait."""
    with engine.connect() as connection:
        if connection.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_lock(:lock)"), {"lock": _LOCK})
            connection.commit()
        with _tables_may_be_replaced(connection):
            command.upgrade(_config(connection), revision)
            connection.commit()
        if connection.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_unlock(:lock)"), {"lock": _LOCK})
            connection.commit()


def downgrade(engine: Engine, revision: str) -> None:
    """Takes back everything after `revision` (`BASE`: all of it)."""
    with engine.connect() as connection, _tables_may_be_replaced(connection):
        command.downgrade(_config(connection), revision)
        connection.commit()


def head() -> str:
    """The newest revision that this program knows."""
    revision = ScriptDirectory.from_config(_config(None)).get_current_head()
    if revision is None:
        raise LookupError("the package `migrations` holds no revision: the installation is incomplete")
    return revision


def knows(revision: str) -> bool:
    """Whether this program has the revision; one that it has not was made by a newer program."""
    script = ScriptDirectory.from_config(_config(None))
    return any(known.revision == revision for known in script.walk_revisions())


def current(connection: Connection) -> str | None:
    """The revision of a database, None if it is empty."""
    return MigrationContext.configure(connection).get_current_revision()


@contextmanager
def _tables_may_be_replaced(connection: Connection) -> Iterator[None]:
    """SQLite changes a constraint by a new table in place of the old one, which other tables refer to: meanwhile it
    must not look at references. What was there before is compared with what is there afterwards."""
    if connection.dialect.name != "sqlite":
        yield
        return
    # Outside of any transaction: within one SQLite ignores the pragma.
    raw = connection.connection.cursor()
    raw.execute("PRAGMA foreign_keys=OFF")
    try:
        yield
        broken = raw.execute("PRAGMA foreign_key_check").fetchall()
        if broken:
            raise RuntimeError(f"a migration left references to rows that are gone: {broken[:5]}")
    finally:
        raw.execute("PRAGMA foreign_keys=ON")
        raw.close()


def _config(connection: Connection | None) -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(migrations.__file__).parent).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config
