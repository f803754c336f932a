"""The frontiers as one SVG for documents: a panel a group, in tones that are read on light and on dark grounds."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

from scheduler.bench.frontier import Curve, Frontier

_SHOWN: Final = {
    "horizon": "#e5484d",
    "bace": "#3b82f6",
    "bace-elastic": "#0ea5a5",
    "srpt": "#8b5cf6",
    "marginal": "#c27c0e",
    "lcf": "#2f9e58",
    "ldf": "#7d8f1a",
    "cr-lcf": "#d0518c",
    "cr-ldf": "#a8673f",
    "atlas": "#7c8794",
}
"""The policies that are shown, with colours of middling lightness; ablations would hide them."""
_FIRST: Final = "horizon"
_TICKS: Final = (
    1.0,
    0.5,
    2.0,
    0.2,
    5.0,
    0.1,
    10.0,
    0.05,
    0.02,
    20.0,
    50.0,
    0.7,
    1.5,
    0.3,
    3.0,
    0.8,
    0.9,
    0.6,
    1.2,
)
"""Those before are drawn rather than those after, where there is no room for both."""
_TICK_ROOM: Final = 26
_BOUND_CLASSES: Final = {"strict bound": "strict", "moldable bound": "moldable"}
_COLUMNS: Final = 2
_WIDTH, _HEIGHT = 420, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 50, 12, 34, 44
_LEGEND_HEIGHT: Final = 64
_LEGEND_STEP: Final = 150
_ROOM: Final = 1.08
"""How far the axes go beyond what they show."""

_STYLE: Final = """
text{font:12px system-ui,sans-serif;fill:#74808d}.title{font-weight:600;font-size:13px}
.grid{stroke:#9aa5b1;stroke-opacity:.25}.one{stroke:#9aa5b1;stroke-opacity:.8}
.strict,.moldable{stroke:#7c8794}.strict{stroke-dasharray:7 4}.moldable{stroke-dasharray:2 3}
.ci{stroke-opacity:.45}.curve{fill:none;stroke-linejoin:round}
""".replace("\n", "")


@dataclass(frozen=True, slots=True)
class _Axis:
    """A logarithmic axis: ratios to pixels."""

    least: float
    most: float
    begin: float
    end: float

    @classmethod
    def over(cls, values: Sequence[float], begin: float, end: float) -> _Axis:
        return cls(min(values) / _ROOM, max(values) * _ROOM, begin, end)

    def at(self, value: float) -> float:
        part = math.log(value / self.least) / math.log(self.most / self.least)
        return self.begin + part * (self.end - self.begin)

    def ticks(self) -> list[float]:
        kept: list[float] = []
        for tick in _TICKS:
            room = all(abs(self.at(tick) - self.at(other)) >= _TICK_ROOM for other in kept)
            if self.least <= tick <= self.most and room:
                kept.append(tick)
        return kept


def picture_of(frontiers: Sequence[Frontier], base: str) -> str:
    """The panels two in a row, and what the colours mean. Every point is over that of the base."""
    rows = -(-len(frontiers) // _COLUMNS)
    width, height = _COLUMNS * _WIDTH, rows * _HEIGHT + _LEGEND_HEIGHT
    panels = "".join(
        f'<g transform="translate({number % _COLUMNS * _WIDTH} {number // _COLUMNS * _HEIGHT})">'
        f"{''.join(_panel(frontier, base))}</g>"
        for number, frontier in enumerate(frontiers)
    )
    present = {curve.family for frontier in frontiers for curve in frontier.curves}
    bounds = list(dict.fromkeys(title for frontier in frontiers for title in frontier.bounds))
    legend = "".join(_legend([name for name in _SHOWN if name in present], bounds))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img"><title>What is paid against mean JCT, over {escape(base)}</title><style>{_STYLE}</style>'
        f'{panels}<g transform="translate(0 {rows * _HEIGHT})">{legend}</g></svg>\n'
    )


def _panel(frontier: Frontier, base: str) -> Iterator[str]:
    curves = [curve for curve in frontier.curves if curve.family in _SHOWN]
    points = [point for curve in curves for point in curve.points]
    bounds = frontier.bounds.values()
    x = _Axis.over([*(p.jct.value for p in points), *bounds, 1.0], _LEFT, _WIDTH - _RIGHT)
    y = _Axis.over([*(p.paid.value for p in points), 1.0], _HEIGHT - _BOTTOM, _TOP)
    yield f'<text class="title" x="{_LEFT}" y="20">{escape(frontier.group)}</text>'
    for tick in x.ticks():
        yield _line(_mark(tick), x.at(tick), _TOP, x.at(tick), y.begin)
        yield f'<text x="{x.at(tick):.1f}" y="{y.begin + 16:.1f}" text-anchor="middle">{tick:g}</text>'
    for tick in y.ticks():
        yield _line(_mark(tick), _LEFT, y.at(tick), x.end, y.at(tick))
        yield f'<text x="{_LEFT - 6}" y="{y.at(tick) + 4:.1f}" text-anchor="end">{tick:g}</text>'
    middle = (x.begin + x.end) / 2
    yield f'<text x="{middle:.0f}" y="{_HEIGHT - 10}" text-anchor="middle">mean JCT over {escape(base)}</text>'
    yield f'<text transform="translate(13 {(y.begin + y.end) / 2:.0f}) rotate(-90)" text-anchor="middle">paid</text>'
    for title, bound in frontier.bounds.items():
        yield _line(_BOUND_CLASSES[title], x.at(bound), _TOP, x.at(bound), y.begin)
    # what the picture is about lies on top
    for curve in sorted(curves, key=lambda curve: curve.family == _FIRST):
        yield from _curve(curve, x, y)


def _curve(curve: Curve, x: _Axis, y: _Axis) -> Iterator[str]:
    colour, main = _SHOWN[curve.family], curve.family == _FIRST
    places = [(x.at(point.jct.value), y.at(point.paid.value)) for point in curve.points]
    if len(places) > 1:
        path = " ".join(f"{left:.1f},{top:.1f}" for left, top in places)
        width = 2.6 if main else 1.3
        yield f'<polyline class="curve" points="{path}" stroke="{colour}" stroke-width="{width}"/>'
    for point, (left, top) in zip(curve.points, places, strict=True):
        usual = point.label == curve.family
        if usual:
            jct = (_within(x, each) for each in (point.jct.low, point.jct.high))
            paid = (_within(y, each) for each in (point.paid.low, point.paid.high))
            low, high = jct
            bottom, ceiling = paid
            yield _line("ci", low, top, high, top, colour)
            yield _line("ci", left, bottom, left, ceiling, colour)
        radius = (4.5 if main else 3.5) if usual else 1.8
        told = f"{point.label}: JCT × {point.jct.value:.3f}, paid × {point.paid.value:.3f}"
        yield _dot(left, top, radius, colour, told)


def _legend(names: Sequence[str], bounds: Sequence[str]) -> Iterator[str]:
    a_row = _COLUMNS * (_WIDTH - _LEFT) // _LEGEND_STEP
    for number, name in enumerate([*names, *bounds]):
        left, top = _LEFT + number % a_row * _LEGEND_STEP, 16 + number // a_row * 20
        if name in bounds:
            yield _line(_BOUND_CLASSES[name], left - 14, top - 4, left + 6, top - 4)
        else:
            yield _dot(left, top - 4, 4.5, _SHOWN[name], name)
        yield f'<text x="{left + 10}" y="{top}">{escape(name)}</text>'


def _mark(tick: float) -> str:
    return "one" if tick == 1.0 else "grid"


def _within(axis: _Axis, value: float) -> float:
    return axis.at(min(max(value, axis.least), axis.most))


def _line(kind: str, x1: float, y1: float, x2: float, y2: float, colour: str = "") -> str:
    stroke = f' stroke="{colour}"' if colour else ""
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"{stroke}/>'


def _dot(x: float, y: float, radius: float, colour: str, told: str) -> str:
    """A dot that tells something where the pointer rests on it."""
    title = f"<title>{escape(told)}</title>"
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}" fill="{colour}">{title}</circle>'
