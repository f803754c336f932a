"""The one row of the leader: its epoch, and the version of what planning looks at."""

from __future__ import annotations

from typing import cast

from sqlalchemy import Table, update

from service.db.reader import Reader
from service.db.records import LeaderRecord
from service.db.session import Session
from service.db.tables import LeaderRow

_leader = Reader(LeaderRecord, LeaderRow)
# Every transaction of the loops begins or ends with these: they are built once.
_THE_ONE = _leader.select(LeaderRow.id == 1)
_CHANGED = (
    update(cast("Table", LeaderRow.__table__))
    .where(LeaderRow.id == 1)
    .values(snapshot_version=LeaderRow.snapshot_version + 1)
)


def get(session: Session) -> LeaderRecord:
    """The row is there from the first migration on."""
    found = _leader.fetch(session, _THE_ONE, {})
    if not found:
        raise LookupError("the leader row is missing: the first migration inserts it, and nothing removes it")
    return found[0]


def capacity_changed(session: Session) -> None:
    """Makes every plan stale that was made before: nodes, links, prices or allocations are not as they were.

    A new job is no such change: a plan made without it stays as good as it was.
    """
    session.execute(_CHANGED)
