"""What the series of each job comes to, kept beside it: however long they are, a list of jobs reads a row a job."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from statistics import median
from typing import Any

from sqlalchemy import bindparam, select

from service.db.parts import parts
from service.db.reader import Reader
from service.db.records import StepSeriesRecord
from service.db.session import Session
from service.db.tables import StepSeriesRow
from service.db.upsert import insert_of

RECENT_STEPS = 50
"""Of so many steps the measured iteration time is the median."""

_series = Reader(StepSeriesRecord, StepSeriesRow)
_OF_JOBS = _series.select(StepSeriesRow.job_id.in_(bindparam("jobs", expanding=True)))
_ENDS = select(
    StepSeriesRow.job_id,
    StepSeriesRow.first_loss,
    StepSeriesRow.last_loss,
    StepSeriesRow.last_grad_norm,
    StepSeriesRow.iteration_s,
    StepSeriesRow.drift,
    StepSeriesRow.drift_bound,
    StepSeriesRow.rolled_back,
).where(StepSeriesRow.job_id.in_(bindparam("jobs", expanding=True)))

_COLUMNS = tuple(field.name for field in fields(StepSeriesRecord))


@dataclass(frozen=True, slots=True)
class Ends:
    """First and last loss, the last gradient norm, and the measured iteration time; none of them before the first step.
    And of the newest generation the largest drift, its bound, and the updates that were taken back, where stages update
    within a step."""

    first_loss: float | None
    last_loss: float | None
    last_grad_norm: float | None
    iteration_s: float | None
    drift: int | None
    drift_bound: int | None
    rolled_back: int | None


def ends(session: Session, job_ids: Sequence[str]) -> dict[str, Ends]:
    """Of each of these jobs that has reported any step."""
    return {
        row[0]: Ends(*row[1:])
        for part in parts(job_ids)
        for row in session.execute(_ENDS, {"jobs": part}).all()
    }


def add(session: Session, rows: Sequence[Mapping[str, Any]]) -> None:
    """Count steps that have just been stored, as the rows that were stored."""
    told: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: (row["job_id"], row["generation"], row["step"])):
        told[row["job_id"]].append(row)
    before = {
        series.job_id: series
        for part in parts(list(told))
        for series in _series.fetch(session, _OF_JOBS, {"jobs": part})
    }
    after = [continued(before.get(job_id), steps) for job_id, steps in told.items()]
    changed = [series for series in after if series != before.get(series.job_id)]
    if changed:
        statement = _upsert(session.dialect)
        session.execute(statement, [_values(series) for series in changed])


def continued(series: StepSeriesRecord | None, rows: Sequence[Mapping[str, Any]]) -> StepSeriesRecord:
    """A series with more steps of its job: at least one, in order of generation and step."""
    newest = _begun(rows[0]) if series is None else series
    for row in rows:
        newest = _with(newest, row)
    return replace(newest, iteration_s=median(newest.recent_s))


def _begun(row: Mapping[str, Any]) -> StepSeriesRecord:
    """Of one step."""
    step, loss, step_time_s = row["step"], row["loss"], row["step_time_s"]
    return StepSeriesRecord(
        job_id=row["job_id"],
        project=row["project"],
        first_step=step,
        first_loss=loss,
        generation=row["generation"],
        from_step=step,
        last_step=step,
        last_loss=loss,
        last_grad_norm=row["grad_norm"],
        iteration_s=step_time_s,
        recent_s=[step_time_s],
        drift=row["drift"],
        drift_bound=row["drift_bound"],
        rolled_back=row["rolled_back"],
    )


def _with(series: StepSeriesRecord, row: Mapping[str, Any]) -> StepSeriesRecord:
    """A step that its generation has told before is no news; of an earlier generation only a first step is."""
    generation, step = row["generation"], row["step"]
    if generation > series.generation:
        begun = _begun(row)
        if step <= series.first_step:  # it is run again, and told anew
            return begun
        return replace(begun, first_step=series.first_step, first_loss=series.first_loss)
    if generation < series.generation:
        return (
            replace(series, first_step=step, first_loss=row["loss"]) if step < series.first_step else series
        )
    if step <= series.last_step:
        return replace(series, from_step=step) if step < series.from_step else series
    warm_s = [] if series.last_step == series.from_step else series.recent_s[1 - RECENT_STEPS :]
    return replace(
        series,
        last_step=step,
        last_loss=row["loss"],
        last_grad_norm=row["grad_norm"],
        recent_s=[*warm_s, row["step_time_s"]],
        drift=max((each for each in (series.drift, row["drift"]) if each is not None), default=None),
        drift_bound=series.drift_bound if row["drift_bound"] is None else row["drift_bound"],
        rolled_back=series.rolled_back if row["rolled_back"] is None else row["rolled_back"],
    )


def _values(series: StepSeriesRecord) -> dict[str, Any]:
    return {name: getattr(series, name) for name in _COLUMNS}


@cache
def _upsert(dialect: str) -> Any:
    statement = insert_of(dialect, StepSeriesRow.__table__)
    return statement.on_conflict_do_update(
        index_elements=["job_id"],
        set_={name: statement.excluded[name] for name in _COLUMNS if name != "job_id"},
    )
