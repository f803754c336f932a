"""What is paid."""

from __future__ import annotations

from sqlalchemy import BigInteger, String, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from service.db.tables.base import Base, Id, Name, Sequence


class LedgerRow(Base):
    """What an allocation cost, with the price used. Append-only: no row is ever changed or removed."""

    __tablename__ = "ledger"
    seq: Mapped[int] = mapped_column(Sequence, primary_key=True, autoincrement=True)
    project: Mapped[str] = mapped_column(Name)
    job_id: Mapped[str] = mapped_column(Id, index=True)
    allocation_id: Mapped[str] = mapped_column(Id)
    kind: Mapped[str] = mapped_column(String(16))
    region: Mapped[str] = mapped_column(Name)
    dst: Mapped[str] = mapped_column(Name, default="")
    gpu_type: Mapped[str] = mapped_column(Name, default="")
    from_s: Mapped[float]
    to_s: Mapped[float]
    quantity: Mapped[float]
    unit: Mapped[str] = mapped_column(String(16))
    """kWh, GPU-hour or GB."""
    price: Mapped[float | None]
    """USD per unit; None while no price is known for the interval (amount is then 0 and `price_source` says so)."""
    price_source: Mapped[str] = mapped_column(String(255))
    amount_usd: Mapped[float]
    __table_args__ = (
        UniqueConstraint("allocation_id", "kind", "region", "dst", "gpu_type", "from_s", name="billed_once"),
    )


class JobSpendingRow(Base):
    """The sum of the ledger's rows of a job by kind and region; written with them. `unpriced` of them have no price."""

    __tablename__ = "job_spending"
    job_id: Mapped[str] = mapped_column(Id, primary_key=True)
    kind: Mapped[str] = mapped_column(String(16), primary_key=True)
    region: Mapped[str] = mapped_column(Name, primary_key=True)
    project: Mapped[str] = mapped_column(Name)
    quantity: Mapped[float]
    amount_usd: Mapped[float]
    unpriced: Mapped[int] = mapped_column(BigInteger)


class MonthlySpendingRow(Base):
    """The sum of the ledger's rows of a project that begin in a month (UTC); written with them."""

    __tablename__ = "monthly_spending"
    project: Mapped[str] = mapped_column(Name, primary_key=True)
    month: Mapped[str] = mapped_column(String(7), primary_key=True)
    amount_usd: Mapped[float]
