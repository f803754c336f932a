"""Readers of job traces.

Two layouts are known by their columns:
- job_id, submit_s, tenant, gpus, nodes, duration_s, status, kind: Kalos, Helios, Philly (the jobs of 4 GPUs and
  more). Times count from the start of the trace. A failed or cancelled job used its GPUs as well, so `status` is
  not looked at.
- timestamp, duration, num_gpus, gpu_time, cluster: the full Philly trace. It is not in order of time: rows are
  sorted by time stamp. The stamps have no zone: they are taken as one uniform clock that starts at the first of
  them (the hour that the local clock was set back in November 2017 is not taken out). Rows that stand twice in
  every column are one job. The job id is the position of the row in the file, from 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from scheduler.spec.csv_text import CsvTable, read_csv

_STANDARD = ("job_id", "submit_s", "tenant", "gpus", "duration_s")
_PHILLY_FULL = ("timestamp", "duration", "num_gpus", "cluster")


@dataclass(frozen=True, slots=True)
class TraceRow:
    """One job as it was traced: how many GPUs it held for how long."""

    job_id: str
    submit_s: float
    tenant: str
    gpus: int
    duration_s: float


def read_trace(path: Path) -> tuple[TraceRow, ...]:
    """The jobs of a trace in order of submission. Raises SpecError that names the row of a bad value."""
    table = read_csv(path)
    if set(_STANDARD) <= set(table.columns):
        rows = _standard(table)
    elif set(_PHILLY_FULL) <= set(table.columns):
        rows = _philly_full(table)
    else:
        expected = f"the columns {', '.join(_STANDARD)} or {', '.join(_PHILLY_FULL)}"
        raise table.error(-1, "columns", ", ".join(table.columns), expected)
    return tuple(sorted(rows, key=lambda row: row.submit_s))


def _standard(table: CsvTable) -> list[TraceRow]:
    job_ids, tenants = list(table.cells("job_id")), list(table.cells("tenant"))
    rows: list[TraceRow] = []
    seen: set[str] = set()
    for index, job_id in enumerate(job_ids):
        if not job_id or job_id in seen:
            raise table.error(index, "job_id", job_id, "a job_id that no other row has")
        seen.add(job_id)
        rows.append(
            TraceRow(
                job_id=job_id,
                submit_s=table.number(index, "submit_s", least=0),
                tenant=tenants[index],
                gpus=_gpus(table, index, "gpus"),
                duration_s=table.number(index, "duration_s", least=0),
            )
        )
    return rows


def _philly_full(table: CsvTable) -> list[TraceRow]:
    stamps, tenants = list(table.cells("timestamp")), list(table.cells("cluster"))
    times_s = [_clock_s(table, index, stamp) for index, stamp in enumerate(stamps)]
    first_s = min(times_s, default=0.0)
    rows: list[TraceRow] = []
    seen: set[tuple[str, ...]] = set()
    for index, cells in enumerate(table.rows):
        if cells in seen:
            continue
        seen.add(cells)
        rows.append(
            TraceRow(
                job_id=str(index),
                submit_s=times_s[index] - first_s,
                tenant=tenants[index],
                gpus=_gpus(table, index, "num_gpus"),
                duration_s=table.number(index, "duration", least=0),
            )
        )
    return rows


def _gpus(table: CsvTable, row: int, column: str) -> int:
    value = table.number(row, column, least=1)
    if value != int(value):
        raise table.error(row, column, value, "a whole number of GPUs")
    return int(value)


def _clock_s(table: CsvTable, row: int, text: str) -> float:
    try:
        return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()
    except ValueError as error:
        raise table.error(row, "timestamp", text, "a time such as 2017-10-09 07:01:55") from error
