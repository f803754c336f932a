"""What a price will probably be: published where it is, else as in the same hour of the week before.

Day-ahead prices are published up to a day before they hold. Beyond, and where prices are known only when they are
past, the hour of the week is the best simple guide: load and sun repeat with the day, industry with the week.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from scheduler.price import KnownPrices, PriceSeries

WEEK_S: Final = 7 * 86_400.0
HORIZON_S: Final = 14 * 86_400.0
"""How far the forecast reaches; beyond, its mean goes on."""
CARRIED_S: Final = 3 * 3600.0
"""How long the last published price is the best guess for what follows it."""
_STEP_S: Final = 900.0
"""Prices change at multiples of a quarter of an hour, at the finest."""
_STEPS: Final = np.arange(round(HORIZON_S / _STEP_S) + 1, dtype=np.float64)

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Forecast:
    """A forecast price as seen at one moment, ready to be integrated; in the unit of its series (USD per kWh).

    `cumulative[i]` is ∫ price dt from `start_s` to `start_s + i·step`.
    """

    start_s: float
    cumulative: Floats
    beyond: float

    def integral(self, start_s: float, end_s: float) -> float:
        """∫ price dt, price × seconds, over an interval that does not begin before the forecast does."""
        return self._to(end_s) - self._to(start_s)

    def mean(self, start_s: float, end_s: float) -> float:
        """The mean price of an interval; of a moment, the price of its quarter of an hour."""
        end_s = max(end_s, start_s + 1.0)
        return self.integral(start_s, end_s) / (end_s - start_s)

    def integrals(self, start_s: float, durations_s: Floats) -> Floats:
        """`integral` from one moment over several durations."""
        steps = (start_s - self.start_s + durations_s) / _STEP_S
        last = self.cumulative.size - 1
        inside = np.interp(steps, _STEPS[: last + 1], self.cumulative)
        return np.asarray(inside + np.maximum(steps - last, 0.0) * _STEP_S * self.beyond - self._to(start_s))

    def _to(self, time_s: float) -> float:
        steps = max(0.0, (time_s - self.start_s) / _STEP_S)
        last = self.cumulative.size - 1
        if steps >= last:
            return float(self.cumulative[last]) + (steps - last) * _STEP_S * self.beyond
        whole = int(steps)
        here = self.cumulative[whole]
        return float(here + (self.cumulative[whole + 1] - here) * (steps - whole))


def forecast(known: KnownPrices | None) -> Forecast | None:
    """The forecast from `known.now_s` on; None where no price is known: unknown is never cheap."""
    if known is None or known.at(known.now_s) is None:
        return None
    series = known.series
    published = bisect_right(series.known_at_s, known.now_s) - 1
    if published == 0 and len(series.values) == 1:
        return _flat(series.values[0])
    return _remembered(series, published, math.floor(known.now_s / _STEP_S))


@lru_cache(maxsize=4096)
def _flat(value: float) -> Forecast:
    return Forecast(0.0, np.zeros(1), value)


_ARRAYS: dict[int, tuple[PriceSeries, Floats, Floats]] = {}
_MOST_ARRAYS: Final = 256


def _arrays(series: PriceSeries) -> tuple[Floats, Floats]:
    """Times and values of a series as arrays, made once."""
    found = _ARRAYS.get(id(series))
    if found is None:
        if len(_ARRAYS) >= _MOST_ARRAYS:
            _ARRAYS.clear()
        found = _ARRAYS[id(series)] = (series, np.asarray(series.valid_from_s), np.asarray(series.values))
    return found[1], found[2]


_REMEMBERED: dict[tuple[int, int, int], tuple[PriceSeries, Forecast]] = {}
"""One for all who ask in the same quarter of an hour. Holds the series, so that its id stays its own."""
_MOST_REMEMBERED: Final = 2048


def _remembered(series: PriceSeries, published: int, quarter: int) -> Forecast:
    key = (id(series), published, quarter)
    found = _REMEMBERED.get(key)
    if found is None:
        if len(_REMEMBERED) >= _MOST_REMEMBERED:
            _REMEMBERED.clear()
        found = _REMEMBERED[key] = (series, _made(series, published, quarter * _STEP_S))
    return found[1]


def _made(series: PriceSeries, published: int, start_s: float) -> Forecast:
    times, values = (each[: published + 1] for each in _arrays(series))
    starts = start_s + _STEP_S * _STEPS[:-1]
    # The last published value is carried for a while; after that, the same hour a week earlier, again and again.
    weeks = np.ceil(np.maximum(starts - (times[-1] + CARRIED_S) + 1e-6, 0.0) / WEEK_S)
    index = np.searchsorted(times, starts - weeks * WEEK_S, side="right") - 1
    prices = np.where(index >= 0, values[np.maximum(index, 0)], values[-1])
    cumulative = np.concatenate(([0.0], np.cumsum(prices) * _STEP_S))
    week = round(WEEK_S / _STEP_S)
    return Forecast(start_s, cumulative, float(prices[-week:].mean()))
