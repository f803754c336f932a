"""The charts of the report as plotly figures in plain data: traces, layout, and whether a chart is wide."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from itertools import pairwise

import numpy as np

from scheduler.cost import electricity_usd, facility_kw
from scheduler.replay.page import Figure, colour_of, layout_of
from scheduler.replay.records import AllocationRow, ReplayResult
from scheduler.spec.scenario import Scenario

HOUR_S = 3600.0
_MAX_BARS = 4000  # a browser draws so many bars at ease; the longest stay
_POINTS = 600


def gantt(scenario: Scenario, result: ReplayResult) -> Figure:
    """Every allocation as a bar of its region, stacked in lanes; colours follow the region."""
    rows = sorted(result.allocations, key=lambda row: row.start_s - row.end_s)[:_MAX_BARS]
    data, ticks, offset = [], [], 0
    for number, region in enumerate(scenario.cluster.regions):
        own = sorted((row for row in rows if row.region == region), key=lambda row: row.start_s)
        lanes = _lanes(own)
        depth = max(lanes, default=0) + 1
        ticks.append((offset + depth / 2 - 0.5, region))
        if own:
            data.append(
                {
                    "type": "bar",
                    "orientation": "h",
                    "name": region,
                    "y": [offset + lane for lane in lanes],
                    "base": [row.start_s / HOUR_S for row in own],
                    "x": [(row.end_s - row.start_s) / HOUR_S for row in own],
                    "width": 0.86,
                    "marker": {"color": colour_of(number), "line": {"width": 0}},
                    "text": [
                        f"job {escape(row.job_id)}: {row.stages} stages, {row.gpus} GPUs, {row.steps} steps"
                        for row in own
                    ],
                    "textposition": "none",
                    "hovertemplate": "%{text}<br>from %{base:.2f} h<extra>" + escape(region) + "</extra>",
                }
            )
        offset += depth + 1
    left_out = len(result.allocations) - len(rows)
    title = "Allocations" + (
        f" (the longest {len(rows)}; {left_out} shorter ones left out)" if left_out else ""
    )
    axis = {
        "tickvals": [at for at, _ in ticks],
        "ticktext": [name for _, name in ticks],
        "range": [offset - 1, -1],
        "zeroline": False,
        "showgrid": False,
    }
    layout = layout_of(title, "hours from the start", None, height=max(320, min(900, 90 + 8 * offset)))
    layout["yaxis"] = {**layout["yaxis"], **axis, "automargin": True}
    layout["xaxis"]["range"] = [0, _end_s(result) / HOUR_S]
    layout["barmode"] = "overlay"  # else every region's bars leave room for those of all others
    layout["showlegend"] = False
    return {"data": data, "layout": layout, "wide": True}


def jct_distribution(result: ReplayResult) -> Figure:
    """Share of the jobs that were done within a time; JCT and queueing delay."""
    jct_h = [job.jct_s / HOUR_S for job in result.jobs if job.jct_s is not None]
    waited_h = [
        (job.first_start_s - job.submit_s) / HOUR_S for job in result.jobs if job.first_start_s is not None
    ]
    data = [_shares(jct_h, "JCT", 0), _shares(waited_h, "queueing delay", 1)]
    return {"data": data, "layout": _log_x(layout_of("Completion times", "hours (log)", "share of the jobs"))}


def cost_distribution(result: ReplayResult) -> Figure:
    """Share of the jobs that cost at most so much."""
    ran = [job for job in result.jobs if job.finish_s is not None]
    data = [
        _shares([job.electricity_usd for job in ran], "electricity", 2),
        _shares([job.egress_usd for job in ran], "egress", 3),
    ]
    return {"data": data, "layout": _log_x(layout_of("Cost of a job", "USD (log)", "share of the jobs"))}


def utilisation(scenario: Scenario, result: ReplayResult) -> Figure:
    """Share of each region's GPUs that are held, averaged over equal intervals."""
    there = dict.fromkeys(scenario.cluster.regions, 0)
    for pool in scenario.cluster.pools.values():
        there[pool.region] += pool.gpus
    end_s = _end_s(result)
    edges = np.linspace(0.0, end_s, _POINTS + 1)
    shares = []
    for region, gpus in there.items():
        own = [row for row in result.allocations if row.region == region]
        held = _mean_level([(row.start_s, row.end_s, float(row.gpus)) for row in own], edges)
        shares.append((held / gpus if gpus else held).tolist())
    heat = {
        "type": "heatmap",
        "x": (edges[:-1] / HOUR_S).tolist(),
        "y": list(there),
        "z": shares,
        "zmin": 0,
        "zmax": 1,
        "colorscale": [[0, "#f2f5f9"], [0.5, "#7fa8d9"], [1, "#123f7a"]],
        "colorbar": {"title": {"text": "held"}, "tickformat": ".0%"},
        "hovertemplate": "%{y}, hour %{x:.1f}: %{z:.0%} held<extra></extra>",
    }
    layout = layout_of("GPUs held", "hours from the start", None, height=140 + 24 * len(there))
    layout["yaxis"].update({"autorange": "reversed", "automargin": True})
    return {"data": [heat], "layout": layout, "wide": True}


def queue_length(result: ReplayResult) -> Figure:
    """Jobs that wait and jobs that run, averaged over equal intervals."""
    edges = np.linspace(0.0, _end_s(result), _POINTS + 1)
    waits, runs = [], []
    for job in result.jobs:
        if job.first_start_s is not None and job.finish_s is not None:
            waits.append((job.submit_s, job.first_start_s, 1.0))
            runs.append((job.first_start_s, job.finish_s, 1.0))
    hours = (edges[:-1] / HOUR_S).tolist()
    data = [
        _line(hours, _mean_level(waits, edges).tolist(), "waiting", 1),
        _line(hours, _mean_level(runs, edges).tolist(), "running", 0),
    ]
    return {"data": data, "layout": layout_of("Queue", "hours from the start", "jobs")}


def cost_of_regions(scenario: Scenario, result: ReplayResult) -> Figure:
    """Electricity that each region's meter counted, and egress that it sent."""
    electricity = dict.fromkeys(scenario.cluster.regions, 0.0)
    egress = dict.fromkeys(scenario.cluster.regions, 0.0)
    for row in result.allocations:
        kilowatts = facility_kw(row.gpus, row.power_w, scenario.cluster.regions[row.region].pue)
        start_s, end_s = scenario.start_s + row.start_s, scenario.start_s + row.end_s
        electricity[row.region] += electricity_usd(
            scenario.electricity[row.region], start_s, end_s, kilowatts
        )
    for link in result.links:
        egress[link.src] += link.bytes / 1e9 * link.usd_per_gb
    names = list(electricity)
    data = [
        {
            "type": "bar",
            "name": name,
            "x": names,
            "y": list(values.values()),
            "marker": {"color": colour_of(colour)},
        }
        for name, values, colour in (("electricity", electricity, 2), ("egress", egress, 3))
    ]
    return {"data": data, "layout": layout_of("Cost by region", None, "USD")}


def prices(scenario: Scenario, result: ReplayResult) -> Figure:
    """Mean price of each region over equal intervals of the replay."""
    end_s = _end_s(result)
    data = []
    for number, (region, series) in enumerate(scenario.electricity.items()):
        last_s = min(end_s, series.end_s - scenario.start_s)
        edges = [scenario.start_s + float(edge) for edge in np.linspace(0.0, last_s, _POINTS + 1)]
        means = [
            series.integral(left, right) / (right - left) for left, right in pairwise(edges) if right > left
        ]
        hours = [(left - scenario.start_s) / HOUR_S for left in edges[: len(means)]]
        data.append(_line(hours, means, region, number))
    return {
        "data": data,
        "layout": layout_of("Electricity prices", "hours from the start", "USD per kWh"),
        "wide": True,
    }


def _lanes(rows: Sequence[AllocationRow]) -> list[int]:
    """The lane of each row, so that no two of a lane overlap; rows come by start."""
    free_at: list[float] = []
    lanes = []
    for row in rows:
        lane = next((index for index, time_s in enumerate(free_at) if time_s <= row.start_s), len(free_at))
        if lane == len(free_at):
            free_at.append(0.0)
        free_at[lane] = row.end_s
        lanes.append(lane)
    return lanes


def _mean_level(intervals: Sequence[tuple[float, float, float]], edges: np.ndarray) -> np.ndarray:
    """Mean over each bin of the sum of the heights of (start, end, height)."""
    if not intervals:
        return np.zeros(len(edges) - 1)
    starts, ends, heights = (np.asarray(column) for column in zip(*intervals, strict=True))
    area = np.zeros(len(edges))
    for times, signs in ((starts, heights), (ends, -heights)):
        order = np.argsort(times)
        times, signs = times[order], signs[order]
        level, moment = np.cumsum(signs), np.cumsum(signs * times)
        index = np.searchsorted(times, edges, side="right") - 1
        seen = index >= 0
        area[seen] += level[index[seen]] * edges[seen] - moment[index[seen]]
    return np.diff(area) / np.maximum(np.diff(edges), 1e-12)


def _shares(values: Sequence[float], name: str, colour: int) -> Figure:
    ordered = sorted(values)
    count = len(ordered)
    keep = sorted({round(index) for index in np.linspace(0, count - 1, min(count, _POINTS))}) if count else []
    keep = [
        index for index in keep if ordered[index] > 0
    ]  # the axis is logarithmic; what is 0 counts in the shares
    shares = [(index + 1) / count for index in keep]
    return {
        **_line([ordered[index] for index in keep], shares, name, colour),
        "line": {"color": colour_of(colour), "shape": "hv"},
    }


def _line(x: list[float], y: list[float], name: str, colour: int) -> Figure:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "x": x,
        "y": y,
        "line": {"color": colour_of(colour), "width": 1.6},
    }


def _log_x(layout: Figure) -> Figure:
    layout["xaxis"].update({"type": "log", "exponentformat": "none"})
    layout["yaxis"]["range"] = [0, 1.02]
    return layout


def _end_s(result: ReplayResult) -> float:
    return max((row.end_s for row in result.allocations), default=HOUR_S)
