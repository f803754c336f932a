"""What workers tell."""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, ForeignKey, Index, String, Text, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from service.db.tables.base import Base, Name, Sequence


class StepRow(Base):
    """The reported series: one row a step, whatever was run again after a restart (the last generation's)."""

    __tablename__ = "steps"
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.job_id"), primary_key=True)
    step: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    project: Mapped[str] = mapped_column(Name)
    generation: Mapped[int]
    loss: Mapped[float | None]
    step_time_s: Mapped[float]
    tokens: Mapped[int] = mapped_column(BigInteger)
    at_s: Mapped[float]
    grad_norm: Mapped[float | None]
    compute_s: Mapped[float | None]
    send_s: Mapped[float | None]
    drift: Mapped[int | None] = mapped_column(BigInteger)
    drift_bound: Mapped[int | None] = mapped_column(BigInteger)
    rolled_back: Mapped[int | None] = mapped_column(BigInteger)


class StepSeriesRow(Base):
    """What a job's steps come to; written with them, so that a list of jobs reads one row a job."""

    __tablename__ = "step_series"
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.job_id"), primary_key=True)
    project: Mapped[str] = mapped_column(Name)
    first_step: Mapped[int] = mapped_column(BigInteger)
    """Of all generations; the others are of the newest that has reported any."""
    first_loss: Mapped[float | None]
    generation: Mapped[int]
    from_step: Mapped[int] = mapped_column(BigInteger)
    last_step: Mapped[int] = mapped_column(BigInteger)
    last_loss: Mapped[float | None]
    last_grad_norm: Mapped[float | None]
    iteration_s: Mapped[float]
    """The median of `recent_s`."""
    recent_s: Mapped[list[Any]]
    """What its last steps took, the newest last; the generation's first, a warm-up, only if alone."""
    drift: Mapped[int | None] = mapped_column(BigInteger)
    """The largest of any step."""
    drift_bound: Mapped[int | None] = mapped_column(BigInteger)
    rolled_back: Mapped[int | None] = mapped_column(BigInteger)


class LogRow(Base):
    """A line of a process's log. `line` is its number in that process's log, so that nothing stands twice."""

    __tablename__ = "logs"
    seq: Mapped[int] = mapped_column(Sequence, primary_key=True, autoincrement=True)
    project: Mapped[str] = mapped_column(Name)
    job_id: Mapped[str] = mapped_column(ForeignKey("jobs.job_id"))
    key: Mapped[str] = mapped_column(String(191))
    stage: Mapped[int]
    line: Mapped[int] = mapped_column(BigInteger)
    text: Mapped[str] = mapped_column(Text)
    at_s: Mapped[float]
    __table_args__ = (
        UniqueConstraint("key", "line", name="log_line_once"),
        Index("logs_of_job", "job_id", "seq"),
    )
