"""Rows of one table as records, and back: columns and values, no ORM object in between."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, Generic, TypeVar, cast

from sqlalchemy import ColumnElement, Select, Table, Update, bindparam, insert, select, update
from sqlalchemy.orm import InstrumentedAttribute

from service.db.scope import changed
from service.db.session import Session
from service.db.tables import Base
from service.db.upsert import insert_of

R = TypeVar("R")


class Reader(Generic[R]):
    """`record` is a dataclass whose fields are named like columns of `row`."""

    def __init__(self, record: type[R], row: type[Base]) -> None:
        self._record = record
        self.columns: list[InstrumentedAttribute[Any]] = [
            getattr(row, field.name)
            for field in fields(record)  # type: ignore[arg-type]  # R is always a dataclass
        ]
        # Building a statement costs more than running most of these: once is enough.
        self._base = select(*self.columns)
        self._table = cast("Table", row.__table__)
        # The table, not the class: nothing of the ORM's bookkeeping is needed for values.
        self._insert = insert(self._table)
        self._insert_unless_there: dict[str, Any] = {}
        self._changes: dict[tuple[str, ...], Any] = {}
        self._names = [column.key for column in self.columns]
        self._key = [column.key for column in self._table.primary_key]
        self._is_it = [self._table.c[name] == bindparam(f"its_{name}") for name in self._key]
        self._one = self._base.where(*self._is_it)

    def add(self, session: Session, *records: R) -> None:
        """Inserts records as they are. Raises IntegrityError where a constraint forbids it."""
        session.execute(self._insert, [self._values(record) for record in records])

    def add_unless_there(self, session: Session, record: R) -> bool:
        """Inserts a record; False where its key is taken already."""
        dialect = session.dialect
        statement = self._insert_unless_there.get(dialect)
        if statement is None:
            statement = insert_of(dialect, self._table).on_conflict_do_nothing()
            self._insert_unless_there[dialect] = statement
        # Of an INSERT, SQLAlchemy keeps the number of rows only where it is asked to (psycopg tells -1 otherwise).
        counted = {"preserve_rowcount": True}
        return changed(session.execute(statement, self._values(record), execution_options=counted))

    def change(self, session: Session, record: R, **values: Any) -> bool:
        """Sets `values` if the row is still as `record` has it, and counts its version up; False if somebody else has
        changed it meanwhile."""
        names = tuple(values)
        statement = self._changes.get(names)
        if statement is None:
            statement = self._changes[names] = self._change_of(names)
        its = {f"its_{name}": getattr(record, name) for name in (*self._key, "version")}
        new = {f"new_{name}": value for name, value in values.items()}
        return changed(session.execute(statement, its | new))

    def get(self, session: Session, *key: Any) -> R | None:
        """The row with these values of its primary key."""
        found = self.fetch(
            session, self._one, {f"its_{n}": value for n, value in zip(self._key, key, strict=True)}
        )
        return found[0] if found else None

    def select(self, *where: ColumnElement[bool]) -> Select[Any]:
        """The statement for the rows that satisfy all of `where`; refine it and hand it to `fetch`."""
        return self._base.where(*where)

    def fetch(
        self, session: Session, statement: Select[Any], parameters: Mapping[str, Any] | None = None
    ) -> list[R]:
        """The rows of a statement of `select`, with values for its bound parameters if it has any."""
        found = session.execute(statement, parameters)
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

    def _change_of(self, names: Sequence[str]) -> Update:
        version = self._table.c.version
        values: dict[str, Any] = {name: bindparam(f"new_{name}") for name in names}
        return (
            update(self._table)
            .where(*self._is_it, version == bindparam("its_version"))
            .values(**values, version=version + 1)
        )

    def _values(self, record: R) -> dict[str, Any]:
        return {name: getattr(record, name) for name in self._names}
