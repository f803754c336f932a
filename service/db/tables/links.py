"""Links between regions, and what was measured of them."""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, CheckConstraint, ForeignKey, Index, String
from sqlalchemy.orm import Mapped, mapped_column

from service.db.tables.base import SHARED_PROJECT, Base, Id, Name


class LinkRow(Base):
    """What an operator says of a directed link. `capacity_bps` is a limit, or his estimate; `measuring` is what agents
    may measure of it (None: what the server's settings say)."""

    __tablename__ = "links"
    src: Mapped[str] = mapped_column(ForeignKey("regions.region"), primary_key=True)
    dst: Mapped[str] = mapped_column(ForeignKey("regions.region"), primary_key=True)
    project: Mapped[str] = mapped_column(Name, default=SHARED_PROJECT)
    capacity_bps: Mapped[float]
    latency_s: Mapped[float]
    version: Mapped[int] = mapped_column(default=1)
    capacity_is_limit: Mapped[bool] = mapped_column(Boolean, default=True)
    measuring: Mapped[str | None] = mapped_column(String(16))
    __table_args__ = (
        CheckConstraint("src <> dst", name="link_ends"),
        CheckConstraint("capacity_bps >= 0 AND latency_s >= 0", name="link_figures"),
        CheckConstraint("measuring IN ('off', 'latency', 'bandwidth')", name="link_measuring"),
    )


class LinkTestRow(Base):
    """A measurement of a link by an agent at each of its ends: asked for, open once the far one listens, ended.

    `token` is what the two know each other by, gone with the end. `sent_bytes` is what it may send until it is known
    what it has sent.
    """

    __tablename__ = "link_tests"
    test_id: Mapped[str] = mapped_column(Id, primary_key=True)
    project: Mapped[str] = mapped_column(Name, default=SHARED_PROJECT)
    src: Mapped[str] = mapped_column(Name)
    dst: Mapped[str] = mapped_column(Name)
    kind: Mapped[str] = mapped_column(String(16))
    from_agent: Mapped[str] = mapped_column(Id)
    to_agent: Mapped[str] = mapped_column(Id)
    address: Mapped[str] = mapped_column(String(255))
    """Of the node in dst that listens."""
    port: Mapped[int]
    token: Mapped[str | None] = mapped_column(String(128))
    max_bytes: Mapped[int] = mapped_column(BigInteger)
    max_s: Mapped[float]
    asked_at_s: Mapped[float]
    opened_at_s: Mapped[float | None]
    ended_at_s: Mapped[float | None]
    outcome: Mapped[str | None] = mapped_column(String(16))
    latency_s: Mapped[float | None]
    bandwidth_bps: Mapped[float | None]
    is_floor: Mapped[bool] = mapped_column(Boolean, default=False)
    sent_bytes: Mapped[int] = mapped_column(BigInteger, default=0)
    detail: Mapped[str | None] = mapped_column(String(255))
    __table_args__ = (
        CheckConstraint("kind IN ('latency', 'bandwidth')", name="link_test_kind"),
        CheckConstraint("outcome IN ('done', 'failed', 'broken-off', 'timed-out')", name="link_test_outcome"),
        CheckConstraint("(ended_at_s IS NULL) = (outcome IS NULL)", name="link_test_end"),
        Index("link_tests_of_link", "src", "dst", "kind", "asked_at_s"),
        Index("link_tests_by_end", "ended_at_s"),
    )


class LinkEstimateRow(Base):
    """What the last measurements of a link come to, and what of it planning goes by (None: what the operator said)."""

    __tablename__ = "link_estimates"
    src: Mapped[str] = mapped_column(Name, primary_key=True)
    dst: Mapped[str] = mapped_column(Name, primary_key=True)
    project: Mapped[str] = mapped_column(Name, default=SHARED_PROJECT)
    latency_s: Mapped[float | None]
    latency_at_s: Mapped[float | None]
    bandwidth_bps: Mapped[float | None]
    bandwidth_at_s: Mapped[float | None]
    used_latency_s: Mapped[float | None]
    used_bandwidth_bps: Mapped[float | None]
