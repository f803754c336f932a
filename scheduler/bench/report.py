"""The report of a study: first the frontier of what is paid against completion time, then the tables; and a CSV."""

from __future__ import annotations

import csv
import html
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from scheduler.bench.entries import BOUNDS
from scheduler.bench.frontier import frontiers
from scheduler.bench.pairs import Estimate, mean
from scheduler.bench.results import Row
from scheduler.bench.standing import (
    BASE,
    CellResults,
    against_base,
    bound_against_base,
    cells_of,
    groups_of,
    policies_of,
    usd_per_job_hour_saved,
    worse_cells,
)
from scheduler.replay.page import page_html

REPORT: Final = "report.html"
FIGURES: Final = "figures.csv"

_SHOWN: Final = 50

_RATIOS: Final = (
    ("mean JCT", "jct_mean_s"),
    ("p95 JCT", "jct_p95_s"),
    ("GPU-weighted JCT", "jct_gpu_weighted_s"),
    ("slowdown", "slowdown_mean"),
    ("fairness", "fairness_worst"),
    ("p99 wait of a tenant", "tenant_wait_p99_worst_s"),
    ("wait of gangs", "gang_wait_mean_s"),
    ("electricity", "electricity_usd"),
    ("egress", "egress_usd"),
    ("paid", "paid_usd"),
    ("GPU utilisation", "gpu_utilisation"),
)
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
)
_BOUND_MEANS: Final = (
    "jct_alone_s",
    "jct_strict_s",
    "jct_moldable_s",
    "electricity_at_once_usd",
    "electricity_shifted_usd",
)
_WITH_INTERVAL: Final = frozenset(("jct_mean_s", "electricity_usd", "egress_usd", "paid_usd"))


def write_report(rows: Sequence[Row], folder: Path) -> None:
    """Writes report.html and figures.csv. Raises OSError where that cannot be done."""
    cells = cells_of(rows)
    (folder / REPORT).write_text(report_html(rows, cells), encoding="utf-8")
    with (folder / FIGURES).open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(_columns())
        writer.writerows(line for cell in cells for line in _lines(cell))


def report_html(rows: Sequence[Row], cells: Sequence[CellResults]) -> str:
    """The page. Ratios are those of `pairs.ratio`, with 95 % intervals in brackets."""
    failed = [row for row in rows if row.error is not None]
    codes = sorted({row.code for row in rows})
    cards = [
        ("cells", f"{len(cells)}"),
        ("runs", f"{len(rows)}"),
        ("failed", f"{len(failed)}"),
        ("versions of the code", f"{len(codes)}"),
        ("draws", ", ".join(sorted({row.split for row in rows}))),
    ]
    groups = groups_of(cells)
    return page_html(
        title="Benchmark of the policies",
        subtitle=f"Every figure is over that of {BASE} on the same worlds: the geometric mean over draws and cells, in "
        "brackets its 95 % interval (paired bootstrap). Policies are left out of cells where they reject jobs.",
        cards=cards,
        figures=frontiers(groups),
        tables="".join(_group_table(name, members) for name, members in groups.items()) + _failures(failed),
    )


def _group_table(name: str, cells: Sequence[CellResults]) -> str:
    head = "".join(f"<th>{html.escape(title)}</th>" for title, _ in _RATIOS)
    body = "".join(_policy_line(cells, policy) for policy in policies_of(cells))
    return (
        f"<h2>{html.escape(name)} ({len(cells)} cells)</h2><table><tr><th>policy</th>{head}"
        "<th>$ per job-hour saved</th><th>cells worse by over 1&nbsp;%</th><th>left out</th></tr>"
        f"{body}{_bound_line(cells)}</table>"
    )


def _policy_line(cells: Sequence[CellResults], policy: str) -> str:
    ratios = "".join(f"<td>{_change(against_base(cells, policy, figure))}</td>" for _, figure in _RATIOS)
    saved = usd_per_job_hour_saved(cells, policy)
    price = "–" if saved is None else f"{saved:,.2f}"
    worse = "<br>".join(html.escape(cell.cell) for cell in worse_cells(cells, policy)[:_SHOWN])
    count = len(worse_cells(cells, policy))
    told = f"<details><summary>{count}</summary><small>{worse}</small></details>" if count else ""
    out = sum(cell.rejects(policy) for cell in cells)
    name = html.escape(policy)
    return f"<tr><td>{name}</td>{ratios}<td>{price}</td><td>{told}</td><td>{out or ''}</td></tr>"


def _bound_line(cells: Sequence[CellResults]) -> str:
    """Both forms of the capacity bound of JCT, and the least electricity, over the base."""
    jct = (
        f"{_change(bound_against_base(cells, 'jct_strict_s', 'jct_mean_s'))} strict<br>"
        f"{_change(bound_against_base(cells, 'jct_moldable_s', 'jct_mean_s'))} moldable"
    )
    electricity = _change(bound_against_base(cells, "electricity_at_once_usd", "electricity_usd"))
    told = {"jct_mean_s": jct, "electricity_usd": electricity}
    columns = "".join(f"<td>{told.get(figure, '')}</td>" for _, figure in _RATIOS)
    return f"<tr><td>{BOUNDS.label}</td>{columns}<td></td><td></td><td></td></tr>"


def _change(estimate: Estimate | None) -> str:
    if estimate is None:
        return "–"
    value, low, high = (f"{100 * (each - 1):+.1f}" for each in (estimate.value, estimate.low, estimate.high))
    return f"{value}&nbsp;%<br><small>[{low},&nbsp;{high}]</small>"


def _failures(failed: Sequence[Row]) -> str:
    if not failed:
        return ""
    lines = "".join(
        f"<tr><td>{html.escape(f'{row.grid} {row.cell}')}</td><td>{row.draw}</td><td>{html.escape(row.policy)}</td>"
        f"<td>{html.escape(row.error or '')}</td></tr>"
        for row in failed
    )
    return f"<h2>Failed runs</h2><table><tr><th>cell</th><th>draw</th><th>policy</th><th>why</th></tr>{lines}</table>"


def _columns() -> list[str]:
    figures = [
        column
        for name in (*_MEANS, *_BOUND_MEANS)
        for column in ((name, f"{name}_low", f"{name}_high") if name in _WITH_INTERVAL else (name,))
    ]
    return ["grid", "split", "cell", "contention", "offered_load", "policy", "draws", *figures]


def _lines(cell: CellResults) -> Iterable[list[str]]:
    """A line for each policy of a cell: means over its draws, four digits."""
    for policy, draws in cell.by_policy.items():
        line = [
            cell.grid,
            cell.split,
            cell.cell,
            cell.contention,
            _digits(cell.load),
            policy,
            str(len(draws)),
        ]
        for name in (*_MEANS, *_BOUND_MEANS):
            values = cell.values(policy, name)
            estimate = mean(values) if values else None
            line.append(_digits(estimate.value if estimate else None))
            if name in _WITH_INTERVAL:
                line += [
                    _digits(estimate.low if estimate else None),
                    _digits(estimate.high if estimate else None),
                ]
        yield line


def _digits(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"
