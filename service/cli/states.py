"""The colour of a state: one table for jobs, nodes and checks."""

from __future__ import annotations

from rich.text import Text

from service.cli.output import printable

STYLES = {
    "queued": "yellow",
    "starting": "cyan",
    "running": "bold cyan",
    "stopping": "magenta",
    "succeeded": "green",
    "failed": "bold red",
    "rejected": "red",
    "cancelled": "dim",
    "ready": "green",
    "cordoned": "yellow",
    "lost": "bold red",
    "ok": "green",
    "warning": "yellow",
    "wrong": "bold red",
    "skipped": "dim",
}


def state_text(state: object) -> Text:
    """A state in its colour; one that this version does not know is plain."""
    word = printable(state)
    return Text(word, style=STYLES.get(word, ""))
