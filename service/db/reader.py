"""Rows of one table as records, and back: columns and values, no ORM object in between."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, Generic, TypeVar, cast

from sqlalchemy import ColumnElement, Select, Table, insert, select
from sqlalchemy.orm import InstrumentedAttribute, Session

from service.db.scope import changed
from service.db.tables import Base
from service.db.upsert import insert_of

R = TypeVar("R")


class Reader(Generic[R]):
    """`record` is a dataclass whose fields are named like columns of `row`."""

    def __init__(self, record: type[R], row: type[Base]) -> None:
        self._record = record
        self._columns: list[InstrumentedAttribute[Any]] = [
            getattr(row, field.name)
            for field in fields(record)  # type: ignore[arg-type]  # R is always a dataclass
        ]
        # Building a statement costs more than running most of these: once is enough.
        self._base = select(*self._columns)
        self._table = cast("Table", row.__table__)
        # The table, not the class: nothing of the ORM's bookkeeping is needed for values.
        self._insert = insert(self._table)
        self._insert_unless_there: dict[str, Any] = {}
        self._names = [column.key for column in self._columns]

    def add(self, session: Session, *records: R) -> None:
        """Inserts records as they are. Raises IntegrityError where a constraint forbids it."""
        session.connection().execute(self._insert, [self._values(record) for record in records])

    def add_unless_there(self, session: Session, record: R) -> bool:
        """Inserts a record; False where its key is taken already."""
        dialect = session.get_bind().dialect.name
        statement = self._insert_unless_there.get(dialect)
        if statement is None:
            statement = insert_of(dialect, self._table).on_conflict_do_nothing()
            self._insert_unless_there[dialect] = statement
        # Of an INSERT, SQLAlchemy keeps the number of rows only where it is asked to (psycopg tells -1 otherwise).
        counted = {"preserve_rowcount": True}
        return changed(session.execute(statement, self._values(record), execution_options=counted))

    def select(self, *where: ColumnElement[bool]) -> Select[Any]:
        """The statement for the rows that satisfy all of `where`; refine it and hand it to `fetch`."""
        return self._base.where(*where)

    def fetch(
        self, session: Session, statement: Select[Any], parameters: Mapping[str, Any] | None = None
    ) -> list[R]:
        """The rows of a statement of `select`, with values for its bound parameters if it has any."""
        # Run by the connection: the session would prepare it for rows of the ORM, each time anew.
        found = session.connection().execute(statement, parameters or {})
        return [self._record(*row) for row in found.all()]  # all at once: row by row takes twice the time

    def all(
        self,
        session: Session,
        *where: ColumnElement[bool],
        order_by: Sequence[Any] = (),
        limit: int | None = None,
    ) -> list[R]:
        return self.fetch(session, self.select(*where).order_by(*order_by).limit(limit))

    def first(self, session: Session, *where: ColumnElement[bool], order_by: Sequence[Any] = ()) -> R | None:
        found = self.all(session, *where, order_by=order_by, limit=1)
        return found[0] if found else None

    def _values(self, record: R) -> dict[str, Any]:
        return {name: getattr(record, name) for name in self._names}
