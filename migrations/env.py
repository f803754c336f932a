"""Alembic's entry: migrates the database of the connection that `service.db.migrate` hands over."""

from __future__ import annotations

from alembic import context
from sqlalchemy import Connection

from service.db.tables import Base


def _migrate(connection: Connection) -> None:
    context.configure(
        connection=connection,
        target_metadata=Base.metadata,
        compare_type=True,
        render_as_batch=connection.dialect.name == "sqlite",
        transaction_per_migration=True,
    )
    with context.begin_transaction():
        context.run_migrations()


_migrate(context.config.attributes["connection"])
