"""Whose rows a caller may see: every query of a row that belongs to a project takes a scope."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, or_, true
from sqlalchemy.orm import InstrumentedAttribute

from service.db.tables import SHARED_PROJECT


@dataclass(frozen=True, slots=True)
class Scope:
    """The rows of one project, or (None) of all of them: administrators and the server's own loops."""

    project: str | None

    def of(self, column: InstrumentedAttribute[str]) -> ColumnElement[bool]:
        """The filter on a table's `project` column."""
        return true() if self.project is None else column == self.project

    def with_shared(self, column: InstrumentedAttribute[str]) -> ColumnElement[bool]:
        """The same, and the rows that all projects share."""
        return true() if self.project is None else or_(column == self.project, column == SHARED_PROJECT)

    def narrowed(self, project: str | None) -> Scope:
        """The part of the scope in `project`; a project outside of it has no rows to see."""
        if project is None or project == self.project:
            return self
        return Scope(project) if self.project is None else NOTHING

    def covers(self, project: str) -> bool:
        return self.project is None or self.project == project


EVERYTHING = Scope(None)
NOTHING = Scope("")


def changed(result: Any) -> bool:
    """Whether a guarded statement found its row as expected. Raises TypeError where the driver does not tell."""
    if result.rowcount < 0:
        raise TypeError("the database does not tell how many rows were changed: ask for preserve_rowcount")
    return bool(result.rowcount)
