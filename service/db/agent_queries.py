"""What a heartbeat stores in bulk: steps, log lines, busy fractions; and what it is answered."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from typing import TypeVar

from sqlalchemy import delete, func, select, update
from sqlalchemy.orm import Session

from service.db.reader import Reader
from service.db.records import ProcessRecord
from service.db.tables import LogRow, ProcessRow, StepRow
from service.db.upsert import insert_for

_processes = Reader(ProcessRecord, ProcessRow)
T = TypeVar("T")

_ROWS_A_STATEMENT = 500  # a statement has a bound on its parameters: 32,766 in SQLite


def processes_with_keys(session: Session, keys: Collection[str]) -> dict[str, ProcessRecord]:
    """Those of these keys that there are."""
    found: dict[str, ProcessRecord] = {}
    for part in _parts(sorted(keys)):
        for process in _processes.all(session, ProcessRow.key.in_(part)):
            found[process.key] = process
    return found


def store_steps(session: Session, rows: Iterable[Mapping[str, object]]) -> None:
    """One row a step of a job: a later generation's takes the place of an earlier one's, never the other way."""
    steps = [_finite_loss(row) for row in rows]
    if not steps:
        return
    statement = insert_for(session, StepRow.__table__)
    new = statement.excluded
    columns = ("project", "generation", "loss", "step_time_s", "tokens", "at_s")
    session.execute(
        statement.on_conflict_do_update(
            index_elements=["job_id", "step"],
            set_={name: getattr(new, name) for name in columns},
            where=StepRow.generation <= new.generation,
        ),
        steps,
    )


def store_lines(session: Session, rows: Iterable[Mapping[str, object]]) -> None:
    """Lines of logs, each under its process and number once."""
    lines = list(rows)
    if lines:
        statement = insert_for(session, LogRow.__table__)
        session.execute(statement.on_conflict_do_nothing(index_elements=["key", "line"]), lines)


def set_busy_fractions(session: Session, busy: Mapping[str, float]) -> None:
    """Key → how busy the process kept its GPU; no change of its state, hence of its version."""
    if busy:
        session.execute(
            update(ProcessRow), [{"key": key, "busy_fraction": busy[key]} for key in sorted(busy)]
        )


def drop_oldest_lines(session: Session, keep: int) -> int:
    """Keep the newest `keep` lines of each job; how many were dropped."""
    dropped = 0
    crowded = select(LogRow.job_id).group_by(LogRow.job_id).having(func.count() > keep)
    for job_id in list(session.scalars(crowded)):
        newest = select(LogRow.seq).where(LogRow.job_id == job_id).order_by(LogRow.seq.desc())
        border = session.scalar(newest.offset(keep).limit(1))
        gone = session.execute(
            delete(LogRow).where(LogRow.job_id == job_id, LogRow.seq <= border).returning(LogRow.seq)
        )
        dropped += len(gone.all())
    return dropped


def _finite_loss(row: Mapping[str, object]) -> dict[str, object]:
    """A loss that is not a number is stored as none: not every database can hold it."""
    loss = row["loss"]
    return {**row, "loss": loss if isinstance(loss, float) and math.isfinite(loss) else None}


def _parts(items: list[T]) -> Iterable[list[T]]:
    return (items[start : start + _ROWS_A_STATEMENT] for start in range(0, len(items), _ROWS_A_STATEMENT))
