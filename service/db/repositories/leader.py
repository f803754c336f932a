"""The one row of the leader: its epoch, and the version of what planning looks at."""

from __future__ import annotations

from sqlalchemy import update
from sqlalchemy.orm import Session

from service.db.reader import Reader
from service.db.records import LeaderRecord
from service.db.tables import LeaderRow

_leader = Reader(LeaderRecord, LeaderRow)


def get(session: Session) -> LeaderRecord:
    """The row is there from the first migration on."""
    record = _leader.first(session, LeaderRow.id == 1)
    if record is None:
        raise LookupError("the leader row is missing: the first migration inserts it, and nothing removes it")
    return record


def capacity_changed(session: Session) -> None:
    """Makes every plan stale that was made before: nodes, links, prices or allocations are not as they were.

    A new job is no such change: a plan made without it stays as good as it was.
    """
    session.execute(
        update(LeaderRow).where(LeaderRow.id == 1).values(snapshot_version=LeaderRow.snapshot_version + 1)
    )
