"""Calendar months in UTC: in these money is counted."""

from __future__ import annotations

from datetime import UTC, datetime


def month_of(at_s: float) -> str:
    """`2026-12` of a moment (epoch seconds)."""
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m")


def month_ends_s(at_s: float) -> float:
    """When the month of a moment ends, epoch seconds."""
    now = datetime.fromtimestamp(at_s, UTC)
    year, month = (now.year + 1, 1) if now.month == 12 else (now.year, now.month + 1)
    return datetime(year, month, 1, tzinfo=UTC).timestamp()
