"""A forecast sees what is published, and the same hour of a week before for what is not."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from scheduler.forecast import CARRIED_S, HORIZON_S, WEEK_S, forecast
from scheduler.price import PriceSeries

HOUR_S, DAY_S = 3600.0, 86400.0
HOURS = 24 * 40


def hourly(known_after_s: float = 0.0) -> PriceSeries:
    """A price of its own for every hour of forty days, known so long after (before, if negative) it begins to hold."""
    starts = tuple(index * HOUR_S for index in range(HOURS))
    return PriceSeries(
        starts,
        tuple(float(index) for index in range(HOURS)),
        tuple(start + known_after_s for start in starts),
    )


def test_a_flat_price_stays_flat_for_ever() -> None:
    told = forecast(PriceSeries.flat(0.2).known(1e9))
    assert told is not None
    assert told.integral(1e9, 1e9 + 100) == pytest.approx(20.0)
    assert told.mean(1e9, 1e9 + 50 * DAY_S) == pytest.approx(0.2)
    assert told.integrals(1e9, np.array([0.0, 10.0])).tolist() == pytest.approx([0.0, 2.0])


def test_an_unknown_price_has_no_forecast() -> None:
    assert forecast(None) is None
    assert forecast(hourly(known_after_s=HOUR_S).known(0.0)) is None


def test_what_is_published_is_taken_as_it_is() -> None:
    now_s = 20 * DAY_S + 100.0
    told = forecast(hourly(known_after_s=-DAY_S).known(now_s))
    assert told is not None
    for ahead in range(1, 24):
        hour = 20 * 24 + ahead
        assert told.mean(hour * HOUR_S, (hour + 1) * HOUR_S) == pytest.approx(hour)


def test_the_last_price_carries_for_a_while_then_the_week_before_repeats() -> None:
    now_s = 20 * DAY_S
    told = forecast(hourly(known_after_s=0.0).known(now_s))
    assert told is not None
    last = 20 * 24
    assert told.mean(now_s, now_s + CARRIED_S) == pytest.approx(last)
    for ahead in (3, 10, 100, 167):
        start_s = now_s + ahead * HOUR_S
        assert told.mean(start_s, start_s + HOUR_S) == pytest.approx(last + ahead - 168)
    in_ten_days_s = now_s + 10 * DAY_S
    assert told.mean(in_ten_days_s, in_ten_days_s + HOUR_S) == pytest.approx(last + 240 - 2 * 168)


def test_nothing_unpublished_is_looked_at() -> None:
    now_s = 10 * DAY_S
    other = hourly()
    bent = PriceSeries(
        other.valid_from_s,
        tuple(
            value if at <= now_s else 1e6 for at, value in zip(other.valid_from_s, other.values, strict=True)
        ),
        other.known_at_s,
    )
    ours, theirs = forecast(other.known(now_s)), forecast(bent.known(now_s))
    assert ours is not None
    assert theirs is not None
    assert np.array_equal(ours.cumulative, theirs.cumulative)
    assert ours.beyond == theirs.beyond


def test_an_integral_is_the_sum_of_its_parts_and_the_same_for_many_at_once() -> None:
    now_s = 15 * DAY_S + 1234.0
    told = forecast(hourly().known(now_s))
    assert told is not None
    ends = [now_s + each for each in (1.0, 5000.0, WEEK_S, HORIZON_S - 1.0, HORIZON_S + 3 * DAY_S)]
    for middle, end in itertools.pairwise(ends):
        whole = told.integral(now_s, end)
        assert whole == pytest.approx(told.integral(now_s, middle) + told.integral(middle, end))
    many = told.integrals(now_s, np.array([end - now_s for end in ends]))
    assert many.tolist() == pytest.approx([told.integral(now_s, end) for end in ends])


def test_beyond_its_reach_the_mean_of_its_last_week_goes_on() -> None:
    now_s = 15 * DAY_S
    told = forecast(hourly().known(now_s))
    assert told is not None
    end_s = now_s + HORIZON_S
    assert told.mean(end_s + DAY_S, end_s + 9 * DAY_S) == pytest.approx(told.mean(end_s - WEEK_S, end_s))
    assert math.isfinite(told.beyond)
