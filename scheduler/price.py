"""Prices over time: a step function with, for each value, the moment from which it was known."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from scheduler.errors import InvalidValueError

STALE_S: Final = 86_400.0
"""A price that keeps changing and has not been told for so long is unknown."""
_FEED: Final = 8
"""After so many changes a price is thought to keep changing as often."""


@dataclass(frozen=True, slots=True)
class PriceSeries:
    """A price that holds from `valid_from_s[i]` until the next point (the last one until `end_s`).

    `known_at_s[i]` is when the value was published. Values may be negative; they are in the unit of the series
    (electricity: USD per kWh). Times are epoch seconds, strictly ascending.
    """

    valid_from_s: tuple[float, ...]
    values: tuple[float, ...]
    known_at_s: tuple[float, ...]
    end_s: float = math.inf

    def __post_init__(self) -> None:
        if not self.valid_from_s:
            raise InvalidValueError("price series", (), "at least one point")
        if not len(self.valid_from_s) == len(self.values) == len(self.known_at_s):
            raise InvalidValueError("price series", len(self.values), "as many values as times")
        if any(b <= a for a, b in zip(self.valid_from_s, self.valid_from_s[1:], strict=False)):
            raise InvalidValueError("price series: valid_from_s", "unordered", "strictly ascending times")
        if any(b < a for a, b in zip(self.known_at_s, self.known_at_s[1:], strict=False)):
            raise InvalidValueError("price series: known_at_s", "unordered", "ascending times of publication")
        if self.end_s <= self.valid_from_s[-1]:
            raise InvalidValueError("price series: end_s", self.end_s, "a time after the last point")
        if not all(math.isfinite(value) for value in self.values):
            raise InvalidValueError("price series: values", "not finite", "finite numbers")

    @classmethod
    def flat(cls, value: float) -> PriceSeries:
        """One price for all time, known always."""
        return cls((-math.inf,), (value,), (-math.inf,))

    def at(self, time_s: float) -> float | None:
        """The price that holds at a time; None before the first point and from `end_s` on."""
        index = self._index(time_s)
        return None if index is None else self.values[index]

    def known(self, now_s: float) -> KnownPrices:
        """The series as somebody sees it who lives at `now_s`."""
        return KnownPrices(self, now_s)

    def integral(self, start_s: float, end_s: float) -> float:
        """∫ price dt over [start_s, end_s], in price × seconds.

        Raises InvalidValueError where the series has no price for a part of the interval.
        """
        if end_s <= start_s:
            return 0.0
        index = self._index(start_s)
        if index is None or end_s > self.end_s:
            raise InvalidValueError("price series", (start_s, end_s), "an interval that the series covers")
        total, left = 0.0, start_s
        while left < end_s:
            last = index + 1 == len(self.values)
            right = end_s if last else min(end_s, self.valid_from_s[index + 1])
            total += self.values[index] * (right - left)
            left, index = right, index + 1
        return total

    def pieces(self, start_s: float, end_s: float) -> Iterable[tuple[float, float, float]]:
        """(from, to, price) for each part of [start_s, end_s] with one price, in order."""
        index = self._index(start_s)
        if index is None or end_s > self.end_s:
            raise InvalidValueError("price series", (start_s, end_s), "an interval that the series covers")
        left = start_s
        while left < end_s:
            last = index + 1 == len(self.values)
            right = end_s if last else min(end_s, self.valid_from_s[index + 1])
            yield left, right, self.values[index]
            left, index = right, index + 1

    def _index(self, time_s: float) -> int | None:
        index = bisect_right(self.valid_from_s, time_s) - 1
        return None if index < 0 or time_s >= self.end_s else index


@dataclass(frozen=True, slots=True)
class KnownPrices:
    """The part of a series that was published by `now_s`: all that a decision at that time may see."""

    series: PriceSeries
    now_s: float

    @property
    def stale_since_s(self) -> float | None:
        """When the last value began to hold of a price that keeps changing and has not been told for a day; None of one
        that is up to date, or that seldom changes: it holds until another is told."""
        times, last = self.series.valid_from_s, self._published
        if last < _FEED:
            return None
        usual_s = (times[last] - times[last - _FEED]) / _FEED
        is_stale = self.now_s - times[last] > max(STALE_S, 3 * usual_s)
        return times[last] if is_stale else None

    @property
    def _published(self) -> int:
        """Position of the last value known; −1 if none is."""
        return bisect_right(self.series.known_at_s, self.now_s) - 1

    def at(self, time_s: float) -> float | None:
        """The price that holds at a time as far as known at `now_s`.

        Where the price of that time is not published yet, or the series has ended, the last known one is
        carried forward; None if nothing is known, or nothing any more: a missing price is unknown, never the cheapest.
        """
        if self.stale_since_s is not None:
            return None
        published = self._published
        valid = bisect_right(self.series.valid_from_s, time_s) - 1
        index = min(published, valid)
        return None if index < 0 else self.series.values[index]
