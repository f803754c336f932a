"""The report of a study: the frontier of what is paid against completion time, what it comes to, and all ratios."""

from __future__ import annotations

import html
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from scheduler.bench.charts import chart_of
from scheduler.bench.comparison import (
    BASE,
    against,
    bound_over,
    usd_per_job_hour_saved,
    worse_cells,
)
from scheduler.bench.csv_files import write_figures
from scheduler.bench.entries import BOUNDS, KNOB_SEPARATOR
from scheduler.bench.frontier import frontiers_of
from scheduler.bench.groups import groups_of
from scheduler.bench.results import Row
from scheduler.bench.section import NONE, change, html_of
from scheduler.bench.standing import CellResults, cells_of, policies_of
from scheduler.bench.story import sections_of
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


def write_report(rows: Sequence[Row], folder: Path, base: str = BASE) -> None:
    """Writes report.html and figures.csv. Raises OSError where that cannot be done."""
    cells = cells_of(rows)
    (folder / REPORT).write_text(report_html(rows, cells, base), encoding="utf-8")
    write_figures(cells, folder / FIGURES)


def report_html(rows: Sequence[Row], cells: Sequence[CellResults], base: str) -> str:
    """The page. Ratios are those of `pairs.ratio`, with 95 % intervals in brackets."""
    failed = [row for row in rows if row.error is not None]
    groups = groups_of(cells)
    cards = [
        ("cells", f"{len(cells)}"),
        ("runs", f"{len(rows)}"),
        ("failed", f"{len(failed)}"),
        ("versions of the code", f"{len({row.code for row in rows})}"),
        ("draws", ", ".join(sorted({row.split for row in rows}))),
    ]
    return page_html(
        title="Benchmark of the policies",
        subtitle=f"Every ratio is over {base} on the same worlds, where nothing else is said: the geometric mean "
        f"over draws "
        "and cells, in brackets its 95 % interval (paired bootstrap). Policies are left out of cells where they reject "
        "jobs.",
        cards=cards,
        figures=[chart_of(frontier, base) for frontier in frontiers_of(groups, base)],
        tables="".join(
            (
                *(html_of(section) for section in sections_of(cells, groups, base)),
                *(_group_table(name, members, base) for name, members in groups.items()),
                _failures(failed),
            )
        ),
    )


def _group_table(name: str, cells: Sequence[CellResults], base: str) -> str:
    head = "".join(f"<th>{html.escape(title)}</th>" for title, _ in _RATIOS)
    plain = (policy for policy in policies_of(cells) if KNOB_SEPARATOR not in policy)
    body = "".join(_policy_line(cells, policy, base) for policy in plain)
    return (
        f"<h2>{html.escape(name)} ({len(cells)} cells)</h2><table><tr><th>policy</th>{head}"
        "<th>$ per job-hour saved</th><th>cells worse by over 1&nbsp;%</th><th>left out</th></tr>"
        f"{body}{_bound_line(cells, base)}</table>"
    )


def _policy_line(cells: Sequence[CellResults], policy: str, base: str) -> str:
    ratios = "".join(f"<td>{change(against(cells, policy, base, figure))}</td>" for _, figure in _RATIOS)
    saved = usd_per_job_hour_saved(cells, policy, base)
    price = NONE if saved is None else f"{saved:,.2f}"
    worse = worse_cells(cells, policy, base)
    names = "<br>".join(html.escape(cell.cell) for cell in worse[:_SHOWN])
    told = f"<details><summary>{len(worse)}</summary><small>{names}</small></details>" if worse else ""
    out = sum(cell.rejects(policy) for cell in cells)
    return (
        f"<tr><td>{html.escape(policy)}</td>{ratios}<td>{price}</td><td>{told}</td><td>{out or ''}</td></tr>"
    )


def _bound_line(cells: Sequence[CellResults], base: str) -> str:
    """Both forms of the capacity bound of JCT, and the least electricity, over the base."""
    jct = (
        f"{change(bound_over(cells, 'jct_strict_s', base, 'jct_mean_s'))} strict<br>"
        f"{change(bound_over(cells, 'jct_moldable_s', base, 'jct_mean_s'))} moldable"
    )
    electricity = change(bound_over(cells, "electricity_at_once_usd", base, "electricity_usd"))
    told = {"jct_mean_s": jct, "electricity_usd": electricity}
    columns = "".join(f"<td>{told.get(figure, '')}</td>" for _, figure in _RATIOS)
    return f"<tr><td>{BOUNDS.label}</td>{columns}<td></td><td></td><td></td></tr>"


def _failures(failed: Sequence[Row]) -> str:
    if not failed:
        return ""
    lines = "".join(
        f"<tr><td>{html.escape(f'{row.grid} {row.cell}')}</td><td>{row.draw}</td><td>{html.escape(row.policy)}</td>"
        f"<td>{html.escape(row.error or '')}</td></tr>"
        for row in failed
    )
    return f"<h2>Failed runs</h2><table><tr><th>cell</th><th>draw</th><th>policy</th><th>why</th></tr>{lines}</table>"
