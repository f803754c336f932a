"""INSERT … ON CONFLICT, which SQLite and PostgreSQL spell alike but SQLAlchemy keeps in each dialect."""

from __future__ import annotations

from typing import Any

from sqlalchemy.dialects import postgresql, sqlite


def insert_of(dialect: str, table: Any) -> Any:
    """The INSERT of a dialect, with `.on_conflict_do_nothing` and `.on_conflict_do_update`."""
    return postgresql.insert(table) if dialect == "postgresql" else sqlite.insert(table)
