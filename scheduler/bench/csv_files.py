"""The figures of a study as CSV: all of them, and few of them for a repository."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from scheduler.bench.entries import BOUNDS, KNOB_SEPARATOR
from scheduler.bench.pairs import mean
from scheduler.bench.standing import CellResults

_KEY: Final = ("grid", "split", "cell", "contention", "offered_load", "policy", "draws")
_WITH_INTERVAL: Final = ("jct_mean_s", "electricity_usd", "egress_usd", "paid_usd")
_MEANS: Final = (
    "jobs",
    "rejected",
    "jct_mean_s",
    "jct_p95_s",
    "jct_gpu_weighted_s",
    "wait_mean_s",
    "slowdown_mean",
    "slowdown_p95",
    "fairness_worst",
    "tenant_wait_p99_worst_s",
    "gang_wait_mean_s",
    "gang_wait_p99_s",
    "electricity_usd",
    "egress_usd",
    "rent_usd",
    "paid_usd",
    "gpu_utilisation",
    "preemptions",
    "migrations",
    "decision_p50_s",
    "decision_p99_s",
    "jct_alone_s",
    "jct_strict_s",
    "jct_moldable_s",
    "electricity_at_once_usd",
    "electricity_shifted_usd",
)
_FEW_KEY: Final = ("grid", "cell", "policy", "draws")
_FEW: Final = ("jct_mean_s", "electricity_usd", "egress_usd", "paid_usd")
_FEW_WITH_INTERVAL: Final = ("jct_mean_s", "paid_usd")


def write_figures(cells: Sequence[CellResults], path: Path) -> None:
    """A line for each policy of each cell: means over its draws with 95 % intervals of the main ones, four digits."""
    lines = (
        [
            *(
                cell.grid,
                cell.split,
                cell.cell,
                cell.contention,
                _digits(cell.load, 4),
                policy,
                str(len(draws)),
            ),
            *(_told(cell, policy, _MEANS, _WITH_INTERVAL, 4)),
        ]
        for cell in cells
        for policy, draws in cell.by_policy.items()
    )
    _write(path, (*_KEY, *_columns(_MEANS, _WITH_INTERVAL)), lines)


def write_few_figures(cells: Sequence[CellResults], path: Path) -> None:
    """The same of completion time and money alone, three digits: without bounds and turned knobs."""
    lines = (
        [cell.grid, cell.cell, policy, str(len(draws)), *_told(cell, policy, _FEW, _FEW_WITH_INTERVAL, 3)]
        for cell in cells
        for policy, draws in cell.by_policy.items()
        if policy != BOUNDS.label and KNOB_SEPARATOR not in policy
    )
    _write(path, (*_FEW_KEY, *_columns(_FEW, _FEW_WITH_INTERVAL)), lines)


def _write(path: Path, head: Sequence[str], lines: Iterable[Sequence[str]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(head)
        writer.writerows(lines)


def _columns(figures: Sequence[str], with_interval: Sequence[str]) -> Iterator[str]:
    for name in figures:
        yield name
        if name in with_interval:
            yield from (f"{name}_low", f"{name}_high")


def _told(
    cell: CellResults, policy: str, figures: Sequence[str], with_interval: Sequence[str], digits: int
) -> Iterator[str]:
    for name in figures:
        values = cell.values(policy, name)
        if name in with_interval:
            estimate = mean(values) if values else None
            numbers = (estimate.value, estimate.low, estimate.high) if estimate else (None, None, None)
            yield from (_digits(number, digits) for number in numbers)
        else:
            yield _digits(math.fsum(values.values()) / len(values) if values else None, digits)


def _digits(value: float | None, count: int) -> str:
    """So many digits, without an exponent for what is large."""
    if value is None:
        return ""
    return f"{float(f'{value:.{count}g}'):.0f}" if abs(value) >= 10**count else f"{value:.{count}g}"
