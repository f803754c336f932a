"""Series of prices, and their points."""

from __future__ import annotations

from sqlalchemy import CheckConstraint, ForeignKey, String, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from service.db.tables.base import SHARED_PROJECT, Base, Id, Name, Sequence


class PriceSeriesRow(Base):
    """What a series of prices means. `dst` only for egress (region → dst), `gpu_type` only for rent."""

    __tablename__ = "price_series"
    series_id: Mapped[str] = mapped_column(Id, primary_key=True)
    project: Mapped[str] = mapped_column(Name, default=SHARED_PROJECT)
    kind: Mapped[str] = mapped_column(String(16))
    region: Mapped[str] = mapped_column(ForeignKey("regions.region"))
    gpu_type: Mapped[str] = mapped_column(Name, default="")
    dst: Mapped[str] = mapped_column(Name, default="")
    unit: Mapped[str] = mapped_column(String(32))
    currency: Mapped[str] = mapped_column(String(3))
    source: Mapped[str] = mapped_column(String(255))
    __table_args__ = (
        UniqueConstraint("kind", "region", "gpu_type", "dst", name="price_series_subject"),
        CheckConstraint("kind IN ('electricity', 'rent', 'egress', 'carbon')", name="price_kind"),
    )


class PricePointRow(Base):
    """One value, valid from a moment until the next point of its series, known from `known_at_s`.

    A correction is a new row with a later `known_at_s`; nothing is overwritten.
    """

    __tablename__ = "price_points"
    point_id: Mapped[int] = mapped_column(Sequence, primary_key=True, autoincrement=True)
    project: Mapped[str] = mapped_column(Name, default=SHARED_PROJECT)
    series_id: Mapped[str] = mapped_column(ForeignKey("price_series.series_id"))
    valid_from_s: Mapped[float]
    known_at_s: Mapped[float]
    value: Mapped[float]
    __table_args__ = (UniqueConstraint("series_id", "valid_from_s", "known_at_s", name="price_point_once"),)
