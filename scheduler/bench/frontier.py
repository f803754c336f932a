"""The picture: what is paid against completion time, one curve a policy as its knob turns, beside what cannot be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from scheduler.bench.entries import family_of
from scheduler.bench.pairs import Estimate
from scheduler.bench.standing import BASE, CellResults, against_base, bound_against_base, policies_of
from scheduler.replay.page import Figure, colour_of, layout_of

_GROUPS: Final = (
    "P: all",
    "P: 24 jobs",
    "W: all",
    "R: egress paid, contended",
    "R: egress paid, moderate",
    "R: egress paid, idle",
    "R: egress free, contended",
    "R: egress free, moderate",
)
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
_BOUND_MARKS: Final = (("strict bound", "jct_strict_s", "dash"), ("moldable bound", "jct_moldable_s", "dot"))


def frontiers(groups: Mapping[str, Sequence[CellResults]]) -> list[Figure]:
    """A chart for each of the great groups that the study has."""
    return [_frontier(name, groups[name]) for name in _GROUPS if name in groups]


def _frontier(name: str, cells: Sequence[CellResults]) -> Figure:
    curves: dict[str, list[tuple[str, Estimate, Estimate]]] = {}
    for policy in policies_of(cells):
        jct, paid = (against_base(cells, policy, figure) for figure in ("jct_mean_s", "paid_usd"))
        if jct is not None and paid is not None:
            curves.setdefault(family_of(policy), []).append((policy, jct, paid))
    data = [_curve(family, points, colour) for colour, (family, points) in enumerate(curves.items())]
    layout = layout_of(
        f"{name}: paid against mean JCT, over {BASE}", "mean JCT, ratio", "paid, ratio (log)", height=460
    )
    layout["yaxis"].update({"type": "log", "tickvals": _TICKS})
    layout["shapes"] = _bound_marks(cells)
    layout["annotations"] = [
        {
            "x": mark["x0"],
            "y": 1,
            "yref": "paper",
            "text": title,
            "showarrow": False,
            "textangle": -90,
            "xanchor": "right",
            "yanchor": "top",
        }
        for mark, (title, _, _) in zip(layout["shapes"], _BOUND_MARKS, strict=False)
    ]
    return {"data": data, "layout": layout, "wide": True}


def _curve(family: str, points: list[tuple[str, Estimate, Estimate]], colour: int) -> Figure:
    points = sorted(points, key=lambda point: point[1].value)

    def bars(estimates: list[Estimate]) -> Figure:
        return {
            "type": "data",
            "symmetric": False,
            "array": [each.high - each.value for each in estimates],
            "arrayminus": [each.value - each.low for each in estimates],
            "thickness": 0.8,
            "width": 0,
        }

    jct, paid = [point[1] for point in points], [point[2] for point in points]
    return {
        "type": "scatter",
        "mode": "lines+markers" if len(points) > 1 else "markers",
        "name": family,
        "x": [each.value for each in jct],
        "y": [each.value for each in paid],
        "error_x": bars(jct),
        "error_y": bars(paid),
        "text": [label for label, _, _ in points],
        "hovertemplate": "%{text}: JCT × %{x:.3f}, paid × %{y:.3f}<extra></extra>",
        "marker": {"color": colour_of(colour), "size": 9},
        "line": {"color": colour_of(colour), "width": 1.6},
    }


def _bound_marks(cells: Sequence[CellResults]) -> list[Figure]:
    marks = []
    for _, figure, dash in _BOUND_MARKS:
        bound = bound_against_base(cells, figure, "jct_mean_s")
        if bound is not None:
            marks.append(
                {
                    "type": "line",
                    "x0": bound.value,
                    "x1": bound.value,
                    "y0": 0,
                    "y1": 1,
                    "yref": "paper",
                    "line": {"color": "#6b7b8c", "dash": dash, "width": 1.2},
                }
            )
    return marks
