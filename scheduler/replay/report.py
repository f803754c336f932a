"""report.html: the figures of one replay as one page that needs no network."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any

from scheduler.replay.charts import (
    cost_distribution,
    cost_of_regions,
    gantt,
    jct_distribution,
    prices,
    queue_length,
    utilisation,
)
from scheduler.replay.page import page_html
from scheduler.replay.records import ReplayResult
from scheduler.spec.scenario import Scenario
from scheduler.units import format_duration, format_usd


def report_html(scenario: Scenario, result: ReplayResult, summary: dict[str, Any]) -> str:
    """The page, with plotly's script and all data inside it."""
    figures = [
        gantt(scenario, result),
        jct_distribution(result),
        cost_distribution(result),
        utilisation(scenario, result),
        queue_length(result),
        cost_of_regions(scenario, result),
        prices(scenario, result),
    ]
    return page_html(
        title=f"{scenario.name} · {result.policy}",
        subtitle=f"{len(result.jobs)} jobs from {summary['start']}; times are hours after that. "
        f"Percentiles and means are over the jobs that ran.",
        cards=_headlines(summary),
        figures=figures,
        tables=_rejected(summary["rejected"]),
    )


def _headlines(summary: dict[str, Any]) -> list[tuple[str, str]]:
    costs, states = summary["costs_usd"], summary["jobs"]["by_state"]
    return [
        ("jobs", ", ".join(f"{count} {state}" for state, count in states.items())),
        ("mean JCT", _duration(summary["jct_s"]["mean"])),
        ("p95 JCT", _duration(summary["jct_s"]["p95"])),
        ("mean queueing", _duration(summary["queueing_s"]["mean"])),
        ("makespan", _duration(summary["makespan_s"])),
        ("energy", f"{summary['energy_kwh']:,.0f} kWh"),
        ("electricity", format_usd(costs["electricity"])),
        ("egress", format_usd(costs["egress"])),
        ("rent", format_usd(costs["rent"])),
        ("owner pays", format_usd(costs["owner_paid"])),
        ("GPU utilisation", f"{summary['gpu_utilisation']['overall']:.1%}"),
        ("over several regions", f"{summary['jobs_over_several_regions']} jobs"),
    ]


def _duration(value_s: float | None) -> str:
    return "–" if value_s is None else format_duration(value_s)


def _rejected(rejections: Sequence[dict[str, Any]]) -> str:
    if not rejections:
        return ""
    rows = "".join(
        f"<tr><td>{html.escape(entry['job_id'])}</td><td>"
        + "; ".join(html.escape(f"{reason['code']}: {reason['detail']}") for reason in entry["reasons"])
        + "</td></tr>"
        for entry in rejections[:200]
    )
    more = f"<p>… and {len(rejections) - 200} more in summary.json</p>" if len(rejections) > 200 else ""
    return f"<h2>Rejected jobs</h2><table><tr><th>job</th><th>why</th></tr>{rows}</table>{more}"
