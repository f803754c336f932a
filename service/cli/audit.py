"""`bace audit`: who did what."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated, Any

import typer
from rich.console import RenderableType
from rich.text import Text

from scheduler.units import format_time
from service.cli.api import PAGE_LIMIT, Api
from service.cli.output import Format, Output, emit, table


class Outcome(StrEnum):
    """What came of a request."""

    DONE = "done"
    DENIED = "denied"
    REFUSED = "refused"
    FAILED = "failed"


_STYLES = {"done": "green", "denied": "red", "refused": "yellow", "failed": "bold red"}


def audit(
    project: Annotated[str | None, typer.Option("--project", help="Of one project.")] = None,
    account: Annotated[str | None, typer.Option("--account", help="Of one account.")] = None,
    outcome: Annotated[Outcome | None, typer.Option("--outcome", help="What came of it.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=100_000, help="So many at most.")] = 50,
    output: Output = Format.TABLE,
) -> None:
    """Show every change and every denial, newest first: who, what, when, from where."""
    items: list[dict[str, Any]] = []
    cursor = None
    with Api() as api:
        while len(items) < limit:
            page = api.get(
                "/v1/audit",
                project=project,
                account=account,
                outcome=None if outcome is None else outcome.value,
                cursor=cursor,
                limit=min(PAGE_LIMIT, limit - len(items)),
            )
            items += page["items"]
            cursor = page["next"]
            if not cursor:
                break
    emit({"items": items}, output, lambda document: _table(document["items"]))


def _table(entries: list[dict[str, Any]]) -> Iterator[RenderableType]:
    yield table(
        ["WHEN", "ACCOUNT", "FROM", "ACTION", "OBJECT", "PROJECT", "OUTCOME", "TRACE"],
        [
            [
                format_time(entry["last_at_s"]),
                entry["account"] or None,
                entry["address"] or None,
                entry["action"],
                entry["object_id"] or entry["path"],
                entry["project"],
                Text(
                    " ".join(filter(None, (entry["outcome"], entry["code"], _times(entry["count"])))),
                    _STYLES.get(entry["outcome"], ""),
                ),
                entry["trace_id"],
            ]
            for entry in entries
        ],
        empty="Nothing has been done or denied.",
    )


def _times(count: int) -> str:
    return f"× {count}" if count > 1 else ""


def register(app: typer.Typer, panel: str) -> None:
    """Add the command to `bace`."""
    app.command(rich_help_panel=panel)(audit)
