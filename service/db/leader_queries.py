"""Taking, keeping and proving leadership. What it is kept in: `tables.LeaderRow`.

Every write of the control loops touches the leader's row in its own transaction (`holds_epoch`), and so does every
change that makes plans stale (`repositories.leader.capacity_changed`). The database puts them in one order: a plan
is applied before such a change, or finds that it is stale.
"""

from __future__ import annotations

from typing import cast

from sqlalchemy import Table, bindparam, or_, update

from service.db.records import LeaderRecord
from service.db.repositories import leader
from service.db.session import Session
from service.db.tables import LeaderRow

# Built once: several of these are run every second for as long as a server lives.
_leader = cast("Table", LeaderRow.__table__)
_TAKE = (
    update(_leader)
    .where(or_(LeaderRow.expires_at_s < bindparam("now_s"), LeaderRow.holder == bindparam("who")))
    .values(epoch=LeaderRow.epoch + 1, holder=bindparam("who"), expires_at_s=bindparam("until_s"))
    .returning(LeaderRow.epoch)
)
_RENEW = (
    update(_leader)
    .where(LeaderRow.epoch == bindparam("held"))
    .values(expires_at_s=bindparam("until_s"))
    .returning(LeaderRow.id)
)
_PROVE = (
    update(_leader)
    .where(LeaderRow.epoch == bindparam("held"))
    .values(expires_at_s=LeaderRow.expires_at_s)
    .returning(LeaderRow.id)
)


def take_leadership(session: Session, *, holder: str, now_s: float, lease_s: float) -> LeaderRecord | None:
    """Lead from now on under a new epoch; None while another holder's lease runs.

    The same holder (a server that was restarted) need not wait for its own lease: the epoch fences what is left
    of its former self.
    """
    parameters = {"who": holder, "now_s": now_s, "until_s": now_s + lease_s}
    taken = session.execute(_TAKE, parameters).first()
    return leader.get(session) if taken else None


def renew_leadership(session: Session, *, epoch: int, now_s: float, lease_s: float) -> bool:
    """Prolong the lease; False if another epoch has begun."""
    renewed = session.execute(_RENEW, {"held": epoch, "until_s": now_s + lease_s})
    return renewed.first() is not None


def resign_leadership(session: Session, *, epoch: int) -> None:
    """End the lease of this epoch at once, so that another may lead without waiting."""
    session.execute(update(LeaderRow).where(LeaderRow.epoch == epoch).values(expires_at_s=0.0))


def holds_epoch(session: Session, epoch: int) -> bool:
    """Whether this epoch still leads; if so nobody else can begin to until this transaction has ended."""
    held = session.execute(_PROVE, {"held": epoch})
    return held.first() is not None
