"""The frontiers as charts of the HTML report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from scheduler.bench.frontier import Curve, Frontier
from scheduler.bench.pairs import Estimate
from scheduler.replay.page import Figure, colour_of, layout_of

_TICKS: Final = (
    0.01,
    0.02,
    0.05,
    0.1,
    0.2,
    0.3,
    0.4,
    0.5,
    0.6,
    0.7,
    0.8,
    0.9,
    1.0,
    1.2,
    1.5,
    2.0,
    3.0,
    5.0,
    10.0,
)
_DASHES: Final = {"strict bound": "dash", "moldable bound": "dot"}


def chart_of(frontier: Frontier, base: str) -> Figure:
    """What is paid against completion time, with 95 % intervals; bounds are upright lines."""
    layout = layout_of(
        f"{frontier.group}: paid against mean JCT, over {base}",
        "mean JCT, ratio",
        "paid, ratio (log)",
        height=460,
    )
    layout["yaxis"].update({"type": "log", "tickvals": _TICKS})
    layout["shapes"] = [_line(at, _DASHES[title]) for title, at in frontier.bounds.items()]
    layout["annotations"] = [_name(at, title) for title, at in frontier.bounds.items()]
    data = [_curve(curve, colour) for colour, curve in enumerate(frontier.curves)]
    return {"data": data, "layout": layout, "wide": True}


def _curve(curve: Curve, colour: int) -> Figure:
    jct = [point.jct for point in curve.points]
    paid = [point.paid for point in curve.points]
    return {
        "type": "scatter",
        "mode": "lines+markers" if len(curve.points) > 1 else "markers",
        "name": curve.family,
        "x": [each.value for each in jct],
        "y": [each.value for each in paid],
        "error_x": _bars(jct),
        "error_y": _bars(paid),
        "text": [point.label for point in curve.points],
        "hovertemplate": "%{text}: JCT × %{x:.3f}, paid × %{y:.3f}<extra></extra>",
        "marker": {"color": colour_of(colour), "size": 9},
        "line": {"color": colour_of(colour), "width": 1.6},
    }


def _bars(estimates: Sequence[Estimate]) -> Figure:
    return {
        "type": "data",
        "symmetric": False,
        "array": [each.high - each.value for each in estimates],
        "arrayminus": [each.value - each.low for each in estimates],
        "thickness": 0.8,
        "width": 0,
    }


def _line(at: float, dash: str) -> Figure:
    style = {"color": "#6b7b8c", "dash": dash, "width": 1.2}
    return {"type": "line", "x0": at, "x1": at, "y0": 0, "y1": 1, "yref": "paper", "line": style}


def _name(at: float, text: str) -> Figure:
    place = {"x": at, "y": 1, "yref": "paper", "xanchor": "right", "yanchor": "top", "textangle": -90}
    return {**place, "text": text, "showarrow": False}
