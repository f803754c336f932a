"""Long lists of parameters in parts: a statement has a bound on how many it may have, 32,766 in SQLite."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

T = TypeVar("T")

ROWS_A_STATEMENT = 500


def parts(items: Sequence[T]) -> Iterable[Sequence[T]]:
    """The items in their order."""
    return (items[start : start + ROWS_A_STATEMENT] for start in range(0, len(items), ROWS_A_STATEMENT))
