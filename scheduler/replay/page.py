"""A page of charts and tables that needs no network, and how its charts look."""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from importlib.resources import files
from string import Template
from typing import Any

from plotly.offline import get_plotlyjs

_COLOURS = (
    "#3366cc", "#dc6b2f", "#3b9c5d", "#a44ab0", "#c2a12c", "#2aa3b8", "#d0518c", "#6b7b8c", "#7a5cd6", "#94612f",
    "#5f9e2f", "#b23b3b",
)  # fmt: skip

Figure = dict[str, Any]
"""A chart as plotly takes it, in plain data: `data`, `layout`, and `wide` where it takes the whole width."""


def page_html(
    title: str, subtitle: str, cards: Sequence[tuple[str, str]], figures: Sequence[Figure], tables: str
) -> str:
    """The page, with plotly's script and all data inside it.

    `cards` are names and figures to begin with, as text; `tables` is HTML that stands behind the charts.
    """
    template = Template(files("scheduler.replay").joinpath("page.html.template").read_text(encoding="utf-8"))
    return template.substitute(
        title=html.escape(title),
        subtitle=html.escape(subtitle),
        cards="\n".join(
            f'<div class="card"><b>{html.escape(value)}</b><span>{html.escape(name)}</span></div>'
            for name, value in cards
        ),
        tables=tables,
        figures=_script_safe(figures),
        plotly=get_plotlyjs(),
    )


def layout_of(title: str, x: str | None, y: str | None, height: int = 340) -> Figure:
    """A chart's layout: title, what its axes show, height in pixels."""
    axis = {"gridcolor": "#e8ecf0", "zerolinecolor": "#c8d0d8"}
    return {
        "title": {"text": title, "font": {"size": 16}},
        "height": height,
        "margin": {"l": 60, "r": 20, "t": 50, "b": 60},
        "paper_bgcolor": "#ffffff",
        "plot_bgcolor": "#ffffff",
        "font": {"family": "system-ui, sans-serif", "size": 12},
        "xaxis": {"title": {"text": x}, "automargin": True, **axis},
        "yaxis": {"title": {"text": y}, **axis},
        "bargap": 0.1,
        "hovermode": "closest",
    }


def colour_of(number: int) -> str:
    """One of twelve colours that can be told apart; they begin again after the twelfth."""
    return _COLOURS[number % len(_COLOURS)]


def _script_safe(value: object) -> str:
    """JSON that cannot end the script element it stands in."""
    return json.dumps(value, allow_nan=False).replace("<", "\\u003c")
