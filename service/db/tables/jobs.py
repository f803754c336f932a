"""Jobs, the keys that they were submitted under, and what happened to them."""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, Boolean, ForeignKey, Index, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from service.db.tables.base import Base, Id, Name, Sequence


class JobRow(Base):
    """A job: `spec` as asked for and completed, and where it is in its life."""

    __tablename__ = "jobs"
    job_id: Mapped[str] = mapped_column(Id, primary_key=True)
    project: Mapped[str] = mapped_column(ForeignKey("projects.project"))
    name: Mapped[str] = mapped_column(Name)
    submitted_by: Mapped[str] = mapped_column(Id)
    spec: Mapped[dict[str, Any]]
    state: Mapped[str] = mapped_column(String(16))
    priority: Mapped[int]
    submitted_at_s: Mapped[float]
    first_started_at_s: Mapped[float | None]
    finished_at_s: Mapped[float | None]
    declared_steps: Mapped[int] = mapped_column(BigInteger)
    reported_steps: Mapped[int] = mapped_column(BigInteger, default=0)
    checkpoint_step: Mapped[int] = mapped_column(BigInteger, default=0)
    checkpoint_uri: Mapped[str | None] = mapped_column(Text)
    checkpoint_regions: Mapped[list[Any]] = mapped_column(default=list)
    generation: Mapped[int] = mapped_column(default=0)
    """Of the last allocation; 0 before the first."""
    retries: Mapped[int] = mapped_column(default=0)
    not_before_s: Mapped[float] = mapped_column(default=0.0)
    """Back-off: the job is not planned before."""
    cancel_requested: Mapped[bool] = mapped_column(Boolean, default=False)
    stop_cause: Mapped[str | None] = mapped_column(String(64))
    """Why it is STOPPING, hence where it goes from there."""
    reasons: Mapped[list[Any]] = mapped_column(default=list)
    """Why it waits, or why it failed: Reason documents."""
    queue_position: Mapped[int | None]
    version: Mapped[int] = mapped_column(default=1)
    __table_args__ = (
        # In the order in which they are listed.
        Index("jobs_by_time", "submitted_at_s", "job_id"),
        Index("jobs_by_state", "state", "submitted_at_s", "job_id"),
        Index("jobs_by_project", "project", "submitted_at_s", "job_id"),
        Index("jobs_by_project_and_state", "project", "state", "submitted_at_s", "job_id"),
        Index("jobs_by_end", "finished_at_s"),
    )


class IdempotencyRow(Base):
    """What a POST with an Idempotency-Key was answered."""

    __tablename__ = "idempotency_keys"
    project: Mapped[str] = mapped_column(Name, primary_key=True)
    key: Mapped[str] = mapped_column(String(255), primary_key=True)
    fingerprint: Mapped[str] = mapped_column(String(64))
    job_id: Mapped[str] = mapped_column(Id)
    created_at_s: Mapped[float]


class EventRow(Base):
    """The outbox and the history: every transition and every change, in commit order of `seq`."""

    __tablename__ = "events"
    seq: Mapped[int] = mapped_column(Sequence, primary_key=True, autoincrement=True)
    project: Mapped[str] = mapped_column(Name)
    at_s: Mapped[float]
    kind: Mapped[str] = mapped_column(String(64))
    """`job.submitted`, `job.running`, `node.lost`, … : object and what happened."""
    object_kind: Mapped[str] = mapped_column(String(16))
    object_id: Mapped[str] = mapped_column(Id)
    actor: Mapped[str] = mapped_column(Id, default="")
    data: Mapped[dict[str, Any]]
    __table_args__ = (Index("events_of_object", "object_kind", "object_id", "seq"),)
