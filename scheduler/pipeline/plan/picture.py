"""The timeline of an order as an SVG picture: a row for each rank, a box for each computation, a line for each message
between regions, from when it begins to occupy its link until it arrives.

It stands alone, in light and dark; whoever puts it into a page may leave out its <style> and style the classes.
The size is bounded: of long iterations the beginning is drawn, of many ranks the first.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape
from itertools import accumulate, pairwise

import numpy as np

from scheduler.pipeline.plan.ir import Op, Pipeline
from scheduler.pipeline.plan.order_run import OPS, OrderRun
from scheduler.units import format_duration

MOST_RANKS = 48
MOST_BOXES = 140
"""Of one rank."""
WIDTH, LEFT, RIGHT, TOP, ROW, BOX = 1200, 168, 14, 74, 24, 19
BETWEEN_REGIONS = 26
NARROWEST_LABEL = 15
"""Pixels of a box in which its micro-batch can be read."""
KINDS = {
    Op.FORWARD: ("f", "F, forward"),
    Op.BACKWARD: ("b", "B, backward"),
    Op.INPUT_GRADIENT: ("i", "I, gradient of the input"),
    Op.WEIGHT_GRADIENT: ("w", "W, gradient of the weights"),
}
STYLE = """
svg{background:#fff;font:12px system-ui,sans-serif}
text{fill:#17202b}.soft{fill:#556270}.band{fill:#f0f2f5}.grid{stroke:#dfe3e8}
.f{fill:#a5d0f5}.b{fill:#a6dfb4}.i{fill:#b9e4c4}.w{fill:#fbd99a}.box{stroke:#fff;stroke-width:.6}
.later{opacity:.72}.in{font-size:10px;text-anchor:middle}.title{font-size:15px;font-weight:650}
.ahead{stroke:#1864ab}.back{stroke:#a61e4d}.message{fill:none;stroke-width:1.1;opacity:.8}
@media(prefers-color-scheme:dark){svg{background:#151c24}text{fill:#e6ebf0}.soft{fill:#a3b0bd}
.band{fill:#1d2630}.grid{stroke:#2a3541}.f{fill:#2a6ca8}.b{fill:#2b7a42}.i{fill:#38875a}.w{fill:#9a6a12}
.box{stroke:#151c24}.ahead{stroke:#74c0fc}.back{stroke:#faa2c1}}
"""


def svg(title: str, pipeline: Pipeline, run: OrderRun) -> str:
    """The picture. `title` is text; names of regions are escaped as well."""
    picture = _Picture(pipeline, run)
    height = picture.bottom + 34
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
            f'aria-label="{escape(title)}">',
            f"<style>{STYLE}</style>",
            f'<text class="title" x="12" y="24">{escape(title)}</text>',
            *picture.legend(),
            *picture.bands(),
            *picture.axis(),
            *picture.boxes(),
            *picture.messages(),
            "</svg>",
            "",
        )
    )


class _Picture:
    """Its parts, and where things stand in it."""

    def __init__(self, pipeline: Pipeline, run: OrderRun) -> None:
        self._pipeline, self._run = pipeline, run
        self._regions = [worker.region for worker in pipeline.workers]
        self.ranks = min(MOST_RANKS, len(self._regions))
        self._until_s = _shown_until_s(run)
        self._scale = (WIDTH - LEFT - RIGHT) / (self._until_s or 1.0)
        crossed = [a != b for a, b in pairwise(self._regions[: self.ranks])]
        gaps = accumulate(crossed, initial=0)
        self._tops = [TOP + ROW * rank + BETWEEN_REGIONS * gap for rank, gap in enumerate(gaps)]
        self.bottom = self._tops[-1] + ROW
        first: dict[int, int] = {}
        for number, stage in enumerate(pipeline.stages):
            first.setdefault(stage.rank, number)
        self._later = [first[stage.rank] != number for number, stage in enumerate(pipeline.stages)]

    def legend(self) -> Iterator[str]:
        """What the colours mean, and what is drawn of the whole."""
        left = 12
        ran = {OPS[number] for number in np.unique(self._run.op[self._run.sends < 0]).tolist()}
        for op, (kind, meaning) in KINDS.items():
            if op in ran:
                yield f'<rect class="{kind}" x="{left}" y="36" width="13" height="13" rx="2"/>'
                yield f'<text class="soft" x="{left + 18}" y="47">{meaning}</text>'
                left += 32 + round(5.9 * len(meaning))
        if len(set(self._regions)) > 1:
            for kind, meaning in (("ahead", "activation on a link"), ("back", "gradient on a link")):
                yield f'<path class="message {kind}" d="M{left} 43h16"/>'
                yield f'<text class="soft" x="{left + 21}" y="47">{meaning}</text>'
                left += 34 + round(5.9 * len(meaning))
        if any(self._later):
            yield f'<rect class="f later" x="{left}" y="36" width="13" height="13" rx="2"/>'
            yield f'<text class="soft" x="{left + 18}" y="47">fainter: later stages of the rank</text>'
        shown = f"{format_duration(self._run.makespan_s)} from the first forward to the last backward"
        if self._until_s < self._run.makespan_s:
            shown = f"the first {format_duration(self._until_s)} of {shown}"
        if self.ranks < len(self._regions):
            shown += f"; the first {self.ranks} of {len(self._regions)} ranks"
        yield f'<text class="soft" x="{WIDTH - RIGHT}" y="24" text-anchor="end">{escape(shown)}</text>'

    def bands(self) -> Iterator[str]:
        """A band behind the ranks of a region, its name, and the number of every rank."""
        for rank, top in enumerate(self._tops):
            region = self._regions[rank]
            yield f'<rect class="band" x="0" y="{top}" width="{WIDTH}" height="{ROW}"/>'
            yield f'<text x="12" y="{top + 16}">{rank}</text>'
            if rank == 0 or self._regions[rank - 1] != region:
                name = region if len(region) <= 18 else f"{region[:17]}…"
                yield f'<text class="soft" x="38" y="{top + 16}">{escape(name)}</text>'

    def axis(self) -> Iterator[str]:
        """Ticks of time."""
        step_s = _tick_s(self._until_s)
        for number in range(math.floor(self._until_s / step_s + 1e-9) + 1 if step_s else 1):
            at = self._x(number * step_s)
            yield f'<path class="grid" d="M{at:.1f} {TOP - 4}V{self.bottom + 4}"/>'
            if at < WIDTH - RIGHT - 18:
                told = format_duration(number * step_s) if number else "0"
                yield f'<text class="soft" x="{at:.1f}" y="{self.bottom + 20}" text-anchor="middle">{told}</text>'

    def boxes(self) -> Iterator[str]:
        """The computations, with their micro-batch where there is room."""
        run = self._run
        for rank, row in enumerate(self._tops):
            top = row + (ROW - BOX) / 2
            for step in range(run.begin[rank], run.begin[rank + 1]):
                if run.sends[step] >= 0 or run.start_s[step] >= self._until_s:
                    continue
                left, right = self._x(run.start_s[step]), self._x(min(run.end_s[step], self._until_s))
                kind = KINDS[OPS[run.op[step]]][0]
                later = " later" if self._later[run.stage[step]] else ""
                yield (
                    f'<rect class="box {kind}{later}" x="{left:.1f}" y="{top:g}" width="{right - left:.1f}" '
                    f'height="{BOX}" rx="2"/>'
                )
                if right - left >= NARROWEST_LABEL:
                    middle = (left + right) / 2
                    yield f'<text class="in" x="{middle:.1f}" y="{top + 14:g}">{run.micro_batch[step]}</text>'

    def messages(self) -> Iterator[str]:
        """What goes from region to region."""
        run, stages = self._run, self._pipeline.stages
        for step in np.flatnonzero(run.sends >= 0).tolist():
            here, there = stages[run.stage[step]].rank, int(run.target[step])
            if self._regions[here] == self._regions[there] or max(here, there) >= self.ranks:
                continue
            if run.start_s[step] >= self._until_s:
                continue
            ahead = run.op[step] == 0
            left, top = self._x(run.start_s[step]), self._edge(here, there)
            right, bottom = self._x(run.end_s[step]), self._edge(there, here)
            if run.end_s[step] > self._until_s:  # cut off where the picture ends
                part = (self._until_s - run.start_s[step]) / (run.end_s[step] - run.start_s[step])
                right, bottom = left + (right - left) * part, top + (bottom - top) * part
            yield (
                f'<path class="message {"ahead" if ahead else "back"}" '
                f'd="M{left:.1f} {top:.1f}L{right:.1f} {bottom:.1f}"/>'
            )

    def _edge(self, rank: int, towards: int) -> float:
        """The side of a row that looks to another."""
        middle = self._tops[rank] + ROW / 2
        return middle + BOX / 2 if towards > rank else middle - BOX / 2

    def _x(self, at_s: float) -> float:
        return LEFT + at_s * self._scale


def _shown_until_s(run: OrderRun) -> float:
    """The whole, or the time at which some rank has begun as many computations as are drawn."""
    until_s = run.makespan_s
    for first, last in zip(run.begin[:-1], run.begin[1:], strict=True):
        starts = run.start_s[first:last][run.sends[first:last] < 0]
        if starts.size > MOST_BOXES:
            until_s = min(until_s, float(starts[MOST_BOXES]))
    return until_s


def _tick_s(shown_s: float) -> float:
    """A round step of which some ten fit."""
    if shown_s <= 0:
        return 0.0
    power = 10.0 ** math.floor(math.log10(shown_s / 8))
    return next(power * part for part in _ROUND if shown_s / (power * part) <= 12)


_ROUND: Sequence[float] = (1.0, 2.0, 5.0, 10.0, 20.0)
