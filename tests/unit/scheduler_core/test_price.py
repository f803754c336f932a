"""Prices integrate exactly over any day, and one that is not told any more is not known."""

from __future__ import annotations

import math
from datetime import datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest

from scheduler.errors import InvalidValueError
from scheduler.forecast import forecast
from scheduler.price import STALE_S, PriceSeries

HOUR_S, DAY_S = 3600.0, 86_400.0
BERLIN = ZoneInfo("Europe/Berlin")


def local_day(year: int, month: int, day: int) -> tuple[float, float]:
    """When a day begins and ends in Berlin, epoch seconds."""
    start = datetime(year, month, day, tzinfo=BERLIN)
    return start.timestamp(), (start.replace(hour=0) + timedelta(days=1)).timestamp()


def stepping(start_s: float, step_s: float, count: int, known_before_s: float = 30 * DAY_S) -> PriceSeries:
    """A price of its own for every step, some below zero, all known long before."""
    starts = tuple(start_s + index * step_s for index in range(count))
    values = tuple(math.sin(index) for index in range(count))
    return PriceSeries(starts, values, tuple(start - known_before_s for start in starts))


@pytest.mark.parametrize("step_s", [HOUR_S, 900.0])
@pytest.mark.parametrize(("day", "hours"), [((2023, 3, 26), 23), ((2023, 10, 29), 25), ((2023, 6, 1), 24)])
def test_days_of_23_and_25_hours_are_integrated_hour_by_hour(
    day: tuple[int, int, int], hours: int, step_s: float
) -> None:
    start_s, end_s = local_day(*day)
    assert end_s - start_s == hours * HOUR_S
    before_s = start_s - 2 * DAY_S
    series = stepping(before_s, step_s, round(6 * DAY_S / step_s))
    edges = [before_s + index * step_s for index in range(round(6 * DAY_S / step_s) + 1)]
    exact = math.fsum(
        math.sin(index) * (min(b, end_s) - max(a, start_s))
        for index, (a, b) in enumerate(pairwise(edges))
        if b > start_s and a < end_s
    )
    assert series.integral(start_s, end_s) == pytest.approx(exact, rel=1e-12, abs=1e-6)
    assert math.fsum((b - a) * price for a, b, price in series.pieces(start_s, end_s)) == pytest.approx(
        exact, rel=1e-12, abs=1e-6
    )
    seen = forecast(series.known(start_s))
    assert seen is not None
    assert seen.integral(start_s, end_s) == pytest.approx(exact, rel=1e-9, abs=1e-6)


def test_parts_of_a_quarter_of_an_hour_are_integrated_by_their_length() -> None:
    series = stepping(0.0, 900.0, 96)
    exact = 100.0 * math.sin(0) + 900.0 * math.sin(1) + 250.0 * math.sin(2)
    assert series.integral(800.0, 2050.0) == pytest.approx(exact)
    seen = forecast(series.known(800.0))
    assert seen is not None
    assert seen.integral(800.0, 2050.0) == pytest.approx(exact)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_is_no_price(value: float) -> None:
    with pytest.raises(InvalidValueError, match="finite"):
        PriceSeries((0.0, HOUR_S), (0.1, value), (0.0, 0.0))


@pytest.mark.parametrize("step_s", [900.0, HOUR_S])
def test_a_price_that_kept_changing_is_unknown_a_day_after_it_was_last_told(step_s: float) -> None:
    series = stepping(0.0, step_s, 40, known_before_s=0.0)
    last_s = 39 * step_s
    assert series.known(last_s + STALE_S).at(last_s + STALE_S) == math.sin(39)
    seen = series.known(last_s + STALE_S + 1)
    assert seen.stale_since_s == last_s
    assert seen.at(last_s + STALE_S + 1) is None
    assert forecast(seen) is None


def test_a_price_that_seldom_changes_holds_until_another_is_told() -> None:
    assert PriceSeries.flat(0.2).known(1e10).at(1e10) == 0.2
    once = PriceSeries((0.0,), (0.2,), (0.0,))
    assert once.known(400 * DAY_S).at(400 * DAY_S) == 0.2
    corrected = PriceSeries((0.0, 60.0, 120.0), (0.2, 0.3, 0.25), (0.0, 60.0, 120.0))
    assert corrected.known(400 * DAY_S).at(400 * DAY_S) == 0.25
    monthly = stepping(0.0, 30 * DAY_S, 20, known_before_s=0.0)
    assert monthly.known(19 * 30 * DAY_S + 60 * DAY_S).at(19 * 30 * DAY_S + 60 * DAY_S) == math.sin(19)
