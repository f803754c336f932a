"""Reports on their way to the server: what goes into a heartbeat, and what gives way when there are too many."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from agents.protocol import BusyReport, LogReport, Report
from agents.state import Unsent

BATCH_REPORTS = 2000
BATCH_BYTES = 256 * 1024
BACKLOG_BYTES = 32 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Batch:
    """The oldest reports that fit into one heartbeat."""

    reports: tuple[Report, ...]
    waiting_keys: frozenset[str]
    """Keys with reports that did not fit: the end of such a process is not told before they are."""


def next_batch(unsent: Mapping[int, Unsent], max_bytes: int = BATCH_BYTES) -> Batch:
    """In the order of their numbers; at least one, so that a large report cannot block the rest for ever."""
    reports: list[Report] = []
    size_bytes = 0
    ordered = sorted(unsent)
    for seq in ordered:
        size_bytes += unsent[seq].size_bytes
        if len(reports) == BATCH_REPORTS or (reports and size_bytes > max_bytes):
            break
        reports.append(unsent[seq].report)
    left = ordered[len(reports) :]
    return Batch(tuple(reports), frozenset(unsent[seq].report.key for seq in left))


@dataclass(frozen=True, slots=True)
class Shed:
    """Reports to leave out, and the log lines that say so in the place of the first one of each process."""

    dropped: tuple[int, ...]
    markers: tuple[LogReport, ...]
    lines: int


def shed(unsent: Mapping[int, Unsent], max_bytes: int = BACKLOG_BYTES) -> Shed | None:
    """What has to go so that the rest is half of `max_bytes`; None while there is room.

    Log lines go first, oldest first, then busy fractions. Steps and checkpoints are never left out: a job's
    series and its way to resume depend on them.
    """
    size_bytes = sum(item.size_bytes for item in unsent.values())
    if size_bytes <= max_bytes:
        return None
    dropped: list[int] = []
    left_out: dict[str, tuple[LogReport, int]] = {}
    for kind in (LogReport, BusyReport):
        for seq in sorted(unsent):
            report = unsent[seq].report
            if size_bytes <= max_bytes / 2:
                break
            if isinstance(report, kind):
                dropped.append(seq)
                size_bytes -= unsent[seq].size_bytes
                if isinstance(report, LogReport):
                    first, lines = left_out.get(report.key, (report, 0))
                    left_out[report.key] = (first, lines + len(report.lines))
    markers = tuple(_marker(first, lines) for first, lines in left_out.values())
    return Shed(tuple(dropped), markers, sum(lines for _, lines in left_out.values())) if dropped else None


def _marker(first: LogReport, lines: int) -> LogReport:
    text = f"[agent: {lines} lines left out: the server could not be reached and the agent's buffer was full]"
    return first.model_copy(update={"lines": [text]})
