"""A part of the report as text and tables, whatever it is written in, and how figures are put into words."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from scheduler.bench.pairs import Estimate

_CODE: Final = re.compile("`([^`]+)`")

NONE: Final = "–"
"""What stands where a study has no figure."""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of text under a head. A `caption` tells several tables of a section apart."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    caption: str = ""


@dataclass(frozen=True, slots=True)
class Section:
    """`text` says what the tables show. Without any row the study has nothing for them yet."""

    title: str
    text: str
    tables: tuple[Table, ...]


def change(estimate: Estimate | None) -> str:
    """A ratio as a change in per cent, with its interval: `−14.6 [−16.8, −12.4]`. One draw alone has no interval."""
    if estimate is None or estimate.low == estimate.high:
        return point(estimate)
    value, low, high = (_signed(each) for each in (estimate.value, estimate.low, estimate.high))
    return f"{value} [{low}, {high}]"


def point(estimate: Estimate | None) -> str:
    """The same without the interval: `−14.6`."""
    return NONE if estimate is None else _signed(estimate.value)


def pair(first: Estimate | None, second: Estimate | None) -> str:
    """Two changes: `−14.6 / +3.0`."""
    return NONE if first is None and second is None else f"{point(first)} / {point(second)}"


def draws(estimate: Estimate | None) -> str:
    """How many pairs of draws an estimate is of."""
    return "0" if estimate is None else str(estimate.draws)


def markdown_of(section: Section) -> str:
    """As Markdown, under a heading of the third level."""
    parts = [f"### {section.title}", section.text]
    shown = [table for table in section.tables if table.rows]
    for table in shown:
        parts += [f"**{table.caption}**"] if table.caption else []
        rule = ("---", *["---:"] * (len(table.head) - 1))
        parts.append("\n".join(_line(row) for row in (table.head, rule, *table.rows)))
    if not shown:
        parts.append("This study has no runs for it.")
    return "\n\n".join(part for part in parts if part)


def html_of(section: Section) -> str:
    """As HTML, under a heading of the second level; empty where the study has nothing for it."""
    shown = [table for table in section.tables if table.rows]
    if not shown:
        return ""
    tables = "".join(_html_table(table) for table in shown)
    text = _CODE.sub(r"<code>\1</code>", html.escape(section.text))
    return f"<h2>{html.escape(section.title)}</h2><p>{text}</p>{tables}"


def _line(cells: Sequence[str]) -> str:
    escaped = (cell.replace("|", r"\|") for cell in cells)
    return f"| {' | '.join(escaped)} |"


def _html_table(table: Table) -> str:
    caption = f"<h3>{html.escape(table.caption)}</h3>" if table.caption else ""
    rows = "".join(_html_row(row, "td") for row in table.rows)
    return f"{caption}<table>{_html_row(table.head, 'th')}{rows}</table>"


def _html_row(cells: Sequence[str], tag: str) -> str:
    return f"<tr>{''.join(f'<{tag}>{html.escape(cell)}</{tag}>' for cell in cells)}</tr>"


def _signed(ratio: float) -> str:
    """A change in per cent with its sign, unless it rounds to nothing."""
    told = f"{100 * (ratio - 1):+.1f}".replace("-", "−")
    return told[1:] if told[1:] == "0.0" else told
