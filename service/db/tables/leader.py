"""Who leads."""

from __future__ import annotations

from sqlalchemy import BigInteger, CheckConstraint
from sqlalchemy.orm import Mapped, mapped_column

from service.db.tables.base import SHARED_PROJECT, Base, Id, Name


class LeaderRow(Base):
    """Who runs the control loops. `epoch` grows with every new leader and guards every write of the loops."""

    __tablename__ = "leader"
    id: Mapped[int] = mapped_column(primary_key=True)
    project: Mapped[str] = mapped_column(Name, default=SHARED_PROJECT)
    epoch: Mapped[int] = mapped_column(BigInteger, default=0)
    holder: Mapped[str] = mapped_column(Id, default="")
    expires_at_s: Mapped[float] = mapped_column(default=0.0)
    snapshot_version: Mapped[int] = mapped_column(BigInteger, default=0)
    """Grows with every change that planning looks at; a plan made against another one is stale."""
    __table_args__ = (CheckConstraint("id = 1", name="one_leader_row"),)
