"""What commands print: tables for people, JSON or YAML of the API's own document for programs.

Colours only on a terminal that wants them (NO_COLOR, TERM=dumb). Text that came over the network is never read
as markup, and its control characters are made visible: a log line cannot rewrite the terminal.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from typing import Annotated, Any

import typer
import yaml
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

WIDTH_OF_A_PIPE = 400
"""Columns where the output is not a terminal: lines stay whole, so that `grep` and `awk` find them."""

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class Format(StrEnum):
    """How a command prints its document."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


Output = Annotated[
    Format, typer.Option("--output", "-o", help="table for people; json, yaml: the API's document.")
]


def console() -> Console:
    """Standard output."""
    return _console(sys.stdout.isatty(), stderr=False)


def error_console() -> Console:
    """Standard error: errors, hints and progress, so that standard output stays a document."""
    return _console(sys.stderr.isatty(), stderr=True)


def emit(document: Any, output: Format, table: Callable[[Any], Iterable[RenderableType]]) -> None:
    """Print a document in the form that was asked for; `table` makes its renderables."""
    if output is Format.JSON:
        sys.stdout.write(json.dumps(document, indent=2, ensure_ascii=False) + "\n")
    elif output is Format.YAML:
        sys.stdout.write(yaml.safe_dump(document, sort_keys=False, allow_unicode=True))
    else:
        show(*table(document))


def emit_line(document: Any, output: Format, text: RenderableType) -> None:
    """Print one message of a stream: a line of JSON, a YAML document, or a line of text; at once."""
    if output is Format.JSON:
        sys.stdout.write(json.dumps(document, ensure_ascii=False) + "\n")
    elif output is Format.YAML:
        sys.stdout.write("---\n" + yaml.safe_dump(document, sort_keys=False, allow_unicode=True))
    else:
        console().print(text, soft_wrap=True)
    sys.stdout.flush()


def show(*renderables: RenderableType) -> None:
    """Print for people. A plain `str` is text, never markup."""
    out = console()
    for renderable in renderables:
        out.print(Text(renderable) if isinstance(renderable, str) else renderable)


def printable(text: object) -> str:
    """Text of unknown origin: control characters become visible, line ends and tabs stay."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", str(text))


def table(
    columns: Sequence[str], rows: Iterable[Sequence[object]], *, title: str = "", empty: str = ""
) -> RenderableType:
    """A table without frames. A column whose name starts with `>` is set to the right (numbers)."""
    lines = [[_cell(value) for value in row] for row in rows]
    if not lines and empty:
        return Text(empty, style="dim")
    grid = Table(
        box=None,
        pad_edge=False,
        title=title or None,
        title_justify="left",
        title_style="bold",
        header_style="bold dim",
    )
    for name in columns:
        grid.add_column(
            name.removeprefix(">"), justify="right" if name.startswith(">") else "left", overflow="fold"
        )
    for line in lines:
        grid.add_row(*line)
    return grid


def facts(pairs: Iterable[tuple[str, object]]) -> RenderableType:
    """Names and values below each other; pairs without a value are left out."""
    grid = Table(box=None, pad_edge=False, show_header=False)
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in pairs:
        if value is not None and value != "":
            grid.add_row(name, _cell(value))
    return grid


def heading(text: str) -> Text:
    """The title of a part, with an empty line before it."""
    return Text("\n" + printable(text), style="bold")


def _cell(value: object) -> Text:
    if isinstance(value, Text):
        return value
    return Text("–" if value is None else printable(value))


def _console(terminal: bool, *, stderr: bool) -> Console:
    return Console(
        stderr=stderr, highlight=False, width=None if terminal else WIDTH_OF_A_PIPE, soft_wrap=False
    )
