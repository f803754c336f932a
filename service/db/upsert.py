"""INSERT … ON CONFLICT, which SQLite and PostgreSQL spell alike but SQLAlchemy keeps in each dialect."""

from __future__ import annotations

from typing import Any

from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session


def insert_for(session: Session, table: Any) -> Any:
    """The INSERT of the session's dialect, with `.on_conflict_do_nothing` and `.on_conflict_do_update`."""
    if session.get_bind().dialect.name == "postgresql":
        return postgresql.insert(table)
    return sqlite.insert(table)
