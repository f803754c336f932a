"""The audit log. Append-only: rows are added, read and, when their time is over, dropped; the database refuses to
change one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any, cast

from sqlalchemy import Table, delete, insert, select

from service.db.reader import Reader
from service.db.records import AuditRecord
from service.db.scope import Scope
from service.db.session import Session
from service.db.tables import AuditRow

_audit = Reader(AuditRecord, AuditRow)
_INSERT = insert(cast("Table", AuditRow.__table__))
_GIVEN = [field.name for field in fields(AuditRecord) if field.name != "seq"]


def add(session: Session, records: Sequence[AuditRecord]) -> None:
    """Append rows; each gets its number."""
    rows = [{name: getattr(record, name) for name in _GIVEN} for record in records]
    if rows:
        session.execute(_INSERT, rows)


def page(
    session: Session,
    scope: Scope,
    *,
    before: int | None,
    account: str | None,
    outcome: str | None,
    limit: int,
) -> list[AuditRecord]:
    """The newest rows with a smaller number."""
    where: list[Any] = [scope.of(AuditRow.project)]
    if before is not None:
        where.append(AuditRow.seq < before)
    if account is not None:
        where.append(AuditRow.account == account)
    if outcome is not None:
        where.append(AuditRow.outcome == outcome)
    return _audit.all(session, *where, order_by=[AuditRow.seq.desc()], limit=limit)


def drop_before(session: Session, at_s: float, limit: int) -> int:
    """Drop rows whose time is over, the oldest first; how many."""
    old = select(AuditRow.seq).where(AuditRow.last_at_s < at_s).order_by(AuditRow.seq).limit(limit)
    gone = session.execute(delete(AuditRow).where(AuditRow.seq.in_(old)).returning(AuditRow.seq))
    return len(gone.all())
