"""Reads rows of one table as records: columns in, values out, no ORM object in between."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any, Generic, TypeVar

from sqlalchemy import ColumnElement, Select, select
from sqlalchemy.orm import InstrumentedAttribute, Session

from service.db.tables import Base

R = TypeVar("R")


class Reader(Generic[R]):
    """`record` is a dataclass whose fields are named like columns of `row`."""

    def __init__(self, record: type[R], row: type[Base]) -> None:
        self._record = record
        self._columns: list[InstrumentedAttribute[Any]] = [
            getattr(row, field.name)
            for field in fields(record)  # type: ignore[arg-type]  # R is always a dataclass
        ]

    def select(self, *where: ColumnElement[bool]) -> Select[Any]:
        """The statement for the rows that satisfy all of `where`; refine it and hand it to `fetch`."""
        return select(*self._columns).where(*where)

    def fetch(self, session: Session, statement: Select[Any]) -> list[R]:
        return [self._record(*row) for row in session.execute(statement)]

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
