"""Numbers as they are typed."""

from __future__ import annotations

import math


def finite(value: float) -> float:
    """The value. Raises ValueError for NaN and infinity, which JSON does not know and nothing is to be."""
    if not math.isfinite(value):
        raise ValueError(f"{value} is not valid: expected a finite number")
    return value
