"""The event log: appended in the order of commits, read by number.

Readers go on after the last number they saw, so a smaller number must never become visible after a larger one.
SQLite has one writer at a time. In PostgreSQL numbers are drawn before the commit: the events of a unit of work are
therefore written as its last act, under a lock that its transaction holds until it has committed.
"""

from __future__ import annotations

from typing import Any, cast

from sqlalchemy import Table, and_, bindparam, func, insert, or_, select, text

from service.db.reader import Reader
from service.db.records import EventRecord
from service.db.scope import Scope
from service.db.session import Session
from service.db.tables import SHARED_PROJECT, EventRow

_LOCK = 0x6261_6365  # any constant that nobody else uses as an advisory lock
_INSERT = insert(cast("Table", EventRow.__table__))
_TAKE_TURN = text("SELECT pg_advisory_xact_lock(:lock)")
_events = Reader(EventRecord, EventRow)


# Every reader of the stream, whenever anything happens.
_AFTER = _events.select(EventRow.seq > bindparam("seen")).order_by(EventRow.seq).limit(bindparam("most"))
_AFTER_OF_PROJECT = (
    _events.select(
        EventRow.seq > bindparam("seen"),
        or_(
            EventRow.project == bindparam("project"),
            # What all share is the cluster, not who else may use it.
            and_(EventRow.project == SHARED_PROJECT, EventRow.object_kind.not_in(("account", "token"))),
        ),
    )
    .order_by(EventRow.seq)
    .limit(bindparam("most"))
)


def append(
    session: Session,
    *,
    project: str,
    at_s: float,
    kind: str,
    object_kind: str,
    object_id: str,
    actor: str = "",
    data: dict[str, Any] | None = None,
) -> None:
    """Adds an event to the transaction; it is written with its number when the transaction commits."""
    session.events.append(
        {
            "project": project,
            "at_s": at_s,
            "kind": kind,
            "object_kind": object_kind,
            "object_id": object_id,
            "actor": actor,
            "data": data or {},
        }
    )


def pending(session: Session) -> list[dict[str, Any]]:
    """What the transaction has appended so far."""
    return list(session.events)


def write(session: Session) -> bool:
    """Stores what the unit of work has appended, when it has done all else; False if that is nothing."""
    if not session.events:
        return False
    if session.dialect == "postgresql":
        session.execute(_TAKE_TURN, {"lock": _LOCK})
    session.execute(_INSERT, session.events)
    return True


def after(
    session: Session,
    scope: Scope,
    seq: int,
    limit: int,
    *,
    object_kind: str | None = None,
    object_id: str | None = None,
) -> list[EventRecord]:
    """Events with a number above `seq`, oldest first; of one object if it is named."""
    parameters: dict[str, Any] = {"seen": seq, "most": limit}
    statement = _AFTER
    if scope.project is not None:
        statement, parameters["project"] = _AFTER_OF_PROJECT, scope.project
    if object_kind is not None:
        statement = statement.where(EventRow.object_kind == object_kind)
    if object_id is not None:
        statement = statement.where(EventRow.object_id == object_id)
    return _events.fetch(session, statement, parameters)


def last_seq(session: Session) -> int:
    """The number of the newest event, 0 if there is none."""
    return session.scalar(select(func.max(EventRow.seq))) or 0
