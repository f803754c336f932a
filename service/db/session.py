"""The session of a unit of work: its statements run in one transaction, which is ended by whoever has begun it."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection


class Session:
    """Runs statements and answers rows as values. There are no objects that follow their rows: what an ORM does for
    them before and after every statement takes longer than most statements do."""

    def __init__(self, connection: Connection) -> None:
        """`connection` is in a transaction."""
        self.connection = connection
        self.dialect = connection.dialect.name
        """sqlite or postgresql."""
        self.execute = connection.execute
        self.scalar = connection.scalar
        self.scalars = connection.scalars
        self.events: list[dict[str, Any]] = []
        """Rows of the event log that the unit has appended: `events.write` stores them, as its last act."""
