"""The one row that says who leads, and how far the world has moved since a snapshot was taken.

Every write of the control loops touches this row in its own transaction (`holds_epoch`), and every change that
planning looks at raises its `snapshot_version` (`planning_input_changed`). On PostgreSQL the row's lock puts these
in one order: a plan is applied before such a change or finds that it is stale. Take it first, before locks on jobs.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import or_, select, update
from sqlalchemy.orm import Session

from service.db.tables import SHARED_PROJECT, LeaderRow
from service.db.upsert import insert_for


@dataclass(frozen=True, slots=True)
class LeaderRecord:
    """Who leads: `epoch` is the fencing token, `snapshot_version` what a plan must have been made against."""

    epoch: int
    holder: str
    expires_at_s: float
    snapshot_version: int


def read_leader(session: Session) -> LeaderRecord:
    """The row as it stands; all zero before anybody has led."""
    row = session.execute(
        select(LeaderRow.epoch, LeaderRow.holder, LeaderRow.expires_at_s, LeaderRow.snapshot_version)
    ).first()
    return LeaderRecord(*row) if row else LeaderRecord(0, "", 0.0, 0)


def planning_input_changed(session: Session) -> None:
    """Say that something changed that planning looks at: a job, a node, a price, a link, a region.

    Call it in the transaction of the change, before other rows are locked. A plan made from an earlier snapshot
    is then stale and will not be applied.
    """
    _ensure_row(session)
    session.execute(update(LeaderRow).values(snapshot_version=LeaderRow.snapshot_version + 1))


def take_leadership(session: Session, *, holder: str, now_s: float, lease_s: float) -> LeaderRecord | None:
    """Lead from now on under a new epoch; None while another holder's lease runs.

    The same holder (a server that was restarted) need not wait for its own lease: the epoch fences what is left
    of its former self.
    """
    _ensure_row(session)
    taken = session.execute(
        update(LeaderRow)
        .where(or_(LeaderRow.expires_at_s < now_s, LeaderRow.holder == holder))
        .values(epoch=LeaderRow.epoch + 1, holder=holder, expires_at_s=now_s + lease_s)
        .returning(LeaderRow.epoch)
    ).first()
    return read_leader(session) if taken else None


def renew_leadership(session: Session, *, epoch: int, now_s: float, lease_s: float) -> bool:
    """Prolong the lease; False if another epoch has begun."""
    renewed = session.execute(
        update(LeaderRow)
        .where(LeaderRow.epoch == epoch)
        .values(expires_at_s=now_s + lease_s)
        .returning(LeaderRow.id)
    )
    return renewed.first() is not None


def resign_leadership(session: Session, *, epoch: int) -> None:
    """End the lease of this epoch at once, so that another may lead without waiting."""
    session.execute(update(LeaderRow).where(LeaderRow.epoch == epoch).values(expires_at_s=0.0))


def holds_epoch(session: Session, epoch: int) -> bool:
    """Whether this epoch still leads; if so nobody else can begin to until this transaction has ended."""
    held = session.execute(
        update(LeaderRow)
        .where(LeaderRow.epoch == epoch)
        .values(expires_at_s=LeaderRow.expires_at_s)
        .returning(LeaderRow.id)
    )
    return held.first() is not None


def _ensure_row(session: Session) -> None:
    if session.execute(select(LeaderRow.id)).first() is None:
        session.execute(
            insert_for(session, LeaderRow)
            .values(id=1, project=SHARED_PROJECT, epoch=0, holder="", expires_at_s=0.0, snapshot_version=0)
            .on_conflict_do_nothing()
        )
