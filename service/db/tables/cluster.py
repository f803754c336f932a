"""What there is to run on."""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, CheckConstraint, ForeignKey, Index, String
from sqlalchemy.orm import Mapped, mapped_column

from service.db.tables.base import SHARED_PROJECT, Base, Id, Name


class RegionRow(Base):
    __tablename__ = "regions"
    region: Mapped[str] = mapped_column(Name, primary_key=True)
    project: Mapped[str] = mapped_column(Name, default=SHARED_PROJECT)
    pue: Mapped[float]
    uplink_bps: Mapped[float | None]
    downlink_bps: Mapped[float | None]
    version: Mapped[int] = mapped_column(default=1)
    __table_args__ = (CheckConstraint("pue >= 1", name="region_pue"),)


class GpuTypeRow(Base):
    """What the agents of a type reported last; `sustained_flops` of a pool is the least of its nodes."""

    __tablename__ = "gpu_types"
    gpu_type: Mapped[str] = mapped_column(Name, primary_key=True)
    project: Mapped[str] = mapped_column(Name, default=SHARED_PROJECT)
    memory_bytes: Mapped[float]
    power_w: Mapped[float]
    idle_w: Mapped[float]
    intra_region_bps: Mapped[float]
    version: Mapped[int] = mapped_column(default=1)


class PoolRow(Base):
    """The GPUs of one type in one region: owned, or rented at the `rent` price series."""

    __tablename__ = "pools"
    region: Mapped[str] = mapped_column(ForeignKey("regions.region"), primary_key=True)
    gpu_type: Mapped[str] = mapped_column(ForeignKey("gpu_types.gpu_type"), primary_key=True)
    project: Mapped[str] = mapped_column(Name, default=SHARED_PROJECT)
    ownership: Mapped[str] = mapped_column(String(8), default="owned")
    version: Mapped[int] = mapped_column(default=1)
    __table_args__ = (CheckConstraint("ownership IN ('owned', 'rented')", name="pool_ownership"),)


class AgentRow(Base):
    __tablename__ = "agents"
    agent_id: Mapped[str] = mapped_column(Id, primary_key=True)
    project: Mapped[str] = mapped_column(Name, default=SHARED_PROJECT)
    token_id: Mapped[str] = mapped_column(ForeignKey("tokens.token_id"))
    agent_version: Mapped[str] = mapped_column(String(64))
    boot_id: Mapped[str | None] = mapped_column(Id)
    reports_stored: Mapped[int] = mapped_column(BigInteger, default=0)
    clock_offset_s: Mapped[float] = mapped_column(default=0.0)
    joined_at_s: Mapped[float]
    heartbeat_at_s: Mapped[float]
    revoked_at_s: Mapped[float | None]
    """It opens nothing any more, until it joins with a token made for that."""
    measures_links: Mapped[bool] = mapped_column(Boolean, default=False)
    """Whether it said so with its last heartbeat."""


class NodeRow(Base):
    """A host. `state`: ready | cordoned | lost. Liveness is the agent's heartbeat by the server's clock."""

    __tablename__ = "nodes"
    node_id: Mapped[str] = mapped_column(Id, primary_key=True)
    project: Mapped[str] = mapped_column(Name, default=SHARED_PROJECT)
    agent_id: Mapped[str] = mapped_column(ForeignKey("agents.agent_id"), index=True)
    region: Mapped[str] = mapped_column(ForeignKey("regions.region"))
    gpu_type: Mapped[str] = mapped_column(ForeignKey("gpu_types.gpu_type"))
    gpus: Mapped[int]
    address: Mapped[str] = mapped_column(String(255))
    interface: Mapped[str | None] = mapped_column(String(64))
    port_first: Mapped[int]
    port_last: Mapped[int]
    sustained_flops: Mapped[float]
    measured_at_s: Mapped[float]
    state: Mapped[str] = mapped_column(String(16), default="ready")
    version: Mapped[int] = mapped_column(default=1)
    __table_args__ = (
        CheckConstraint("state IN ('ready', 'cordoned', 'lost')", name="node_state"),
        CheckConstraint("gpus > 0", name="node_gpus"),
        Index("nodes_by_address", "address"),
    )
