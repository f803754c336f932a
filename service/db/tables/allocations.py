"""What jobs are given, and what is promised to them."""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    ForeignKey,
    Index,
    String,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.orm import Mapped, mapped_column

from service.db.tables.base import Base, Id, Name, Sequence


class AllocationRow(Base):
    """A committed placement of one generation of a job. Its GPUs and bandwidth are held until it has ended."""

    __tablename__ = "allocations"
    allocation_id: Mapped[str] = mapped_column(Id, primary_key=True)
    project: Mapped[str] = mapped_column(Name)
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.job_id"))
    generation: Mapped[int]
    state: Mapped[str] = mapped_column(String(16))
    placement: Mapped[dict[str, Any]]
    why: Mapped[str] = mapped_column(Text, default="")
    transfers: Mapped[list[Any]] = mapped_column(default=list)
    """State that travels to where its stages stand; its bandwidth is held until all of them are up."""
    predicted_iteration_s: Mapped[float]
    first_step: Mapped[int] = mapped_column(BigInteger)
    """The step from which this generation goes on (the checkpoint's + 1)."""
    master_address: Mapped[str] = mapped_column(String(255))
    master_port: Mapped[int]
    epoch: Mapped[int] = mapped_column(BigInteger)
    """Of the leader that committed it."""
    created_at_s: Mapped[float]
    running_at_s: Mapped[float | None]
    ended_at_s: Mapped[float | None]
    billed_until_s: Mapped[float | None]
    stop_cause: Mapped[str | None] = mapped_column(String(64))
    """Why it was told to stop; None where its job came to its own end."""
    stop_why: Mapped[str | None] = mapped_column(Text)
    """The same in a sentence, where a plan stopped it."""
    version: Mapped[int] = mapped_column(default=1)
    __table_args__ = (
        UniqueConstraint("job_id", "generation", name="allocation_generation"),
        Index(
            "one_live_allocation_a_job",
            "job_id",
            unique=True,
            sqlite_where=text("state <> 'ended'"),
            postgresql_where=text("state <> 'ended'"),
        ),
        # The last port used at an address, at every start.
        Index("allocations_by_master", "master_address", "created_at_s", "allocation_id"),
    )


class PromiseRow(Base):
    """A start or move that a plan has decided and that begins when what it needs has been left by jobs that stop.

    `seq` is the order of their rights. The row goes when the job's next generation is committed, or when the promise
    cannot be kept any more; a job in a final state has none.
    """

    __tablename__ = "promises"
    seq: Mapped[int] = mapped_column(Sequence, primary_key=True, autoincrement=True)
    project: Mapped[str] = mapped_column(Name)
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.job_id"), unique=True)
    kind: Mapped[str] = mapped_column(String(8))
    generation: Mapped[int]
    """The one that will begin."""
    placement: Mapped[dict[str, Any]]
    transfers: Mapped[list[Any]]
    predicted_iteration_s: Mapped[float]
    why: Mapped[str] = mapped_column(Text)
    snapshot_version: Mapped[int] = mapped_column(BigInteger)
    """Of the plan that made it."""
    epoch: Mapped[int] = mapped_column(BigInteger)
    """Of the leader that made it; whoever leads keeps it."""
    made_at_s: Mapped[float]
    __table_args__ = (CheckConstraint("kind IN ('start', 'move')", name="promise_kind"),)


class ProcessRow(Base):
    """One rank of an allocation: a process that an agent must run. `launch` is its StageProcess document."""

    __tablename__ = "processes"
    key: Mapped[str] = mapped_column(String(191), primary_key=True)
    project: Mapped[str] = mapped_column(Name)
    allocation_id: Mapped[str] = mapped_column(ForeignKey("allocations.allocation_id"), index=True)
    job_id: Mapped[str] = mapped_column(Id)
    node_id: Mapped[str] = mapped_column(ForeignKey("nodes.node_id"))
    rank: Mapped[int]
    stage: Mapped[int]
    region: Mapped[str] = mapped_column(Name)
    launch: Mapped[dict[str, Any]]
    desired: Mapped[bool] = mapped_column(Boolean, default=True)
    state: Mapped[str] = mapped_column(String(16), default="pending")
    """pending, or a ProcessState of the protocol; `lost` with its node."""
    exit_code: Mapped[int | None]
    cause: Mapped[str | None] = mapped_column(String(64))
    detail: Mapped[str | None] = mapped_column(Text)
    last_lines: Mapped[list[Any]] = mapped_column(default=list)
    busy_fraction: Mapped[float | None]
    version: Mapped[int] = mapped_column(default=1)
    __table_args__ = (
        Index("processes_of_node", "node_id", "desired"),
        UniqueConstraint("allocation_id", "rank", name="process_rank"),
    )


class HeldGpuRow(Base):
    """A GPU that a live allocation holds. The key makes a second promise of it impossible."""

    __tablename__ = "held_gpus"
    node_id: Mapped[str] = mapped_column(ForeignKey("nodes.node_id"), primary_key=True)
    gpu_index: Mapped[int] = mapped_column(primary_key=True)
    project: Mapped[str] = mapped_column(Name)
    allocation_id: Mapped[str] = mapped_column(ForeignKey("allocations.allocation_id"), index=True)


class HeldPortRow(Base):
    """The rendezvous port of a live allocation on the node of its rank 0."""

    __tablename__ = "held_ports"
    node_id: Mapped[str] = mapped_column(ForeignKey("nodes.node_id"), primary_key=True)
    port: Mapped[int] = mapped_column(primary_key=True)
    project: Mapped[str] = mapped_column(Name)
    allocation_id: Mapped[str] = mapped_column(ForeignKey("allocations.allocation_id"), index=True)


class HeldLinkRow(Base):
    """Bandwidth that a live allocation holds on a directed link."""

    __tablename__ = "held_links"
    allocation_id: Mapped[str] = mapped_column(ForeignKey("allocations.allocation_id"), primary_key=True)
    src: Mapped[str] = mapped_column(Name, primary_key=True)
    dst: Mapped[str] = mapped_column(Name, primary_key=True)
    project: Mapped[str] = mapped_column(Name)
    bandwidth_bps: Mapped[float]
    __table_args__ = (Index("held_links_by_link", "src", "dst"),)
