"""Quantities: what people write is read as meant, or refused with the field, the value and what would be right."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler import units
from scheduler.errors import InvalidValueError


@pytest.mark.parametrize(
    ("parse", "text", "value"),
    [
        (units.parse_bandwidth, "25Gbps", 25e9),
        (units.parse_bandwidth, "100 Mbit/s", 100e6),
        (units.parse_bandwidth, "1.5Tb/s", 1.5e12),
        (units.parse_bandwidth, "9600bps", 9600.0),
        (units.parse_bandwidth, 1000, 1000.0),
        (units.parse_bytes, "80GB", 80e9),
        (units.parse_bytes, "16GiB", 16 * 2.0**30),
        (units.parse_bytes, "512 kB", 512e3),
        (units.parse_bytes, "7B", 7.0),
        (units.parse_bytes, 2.5, 2.5),
        (units.parse_duration, "6h", 21600.0),
        (units.parse_duration, "1h30m", 5400.0),
        (units.parse_duration, "1d 2h 3min 4.5s", 93784.5),
        (units.parse_duration, "250ms", 0.25),
        (units.parse_duration, 90, 90.0),
        (units.parse_time, "2026-12-24T00:00:00Z", 1798070400.0),
        (units.parse_time, "2026-12-24T01:00:00+01:00", 1798070400.0),
        (units.parse_time, datetime(2026, 12, 24, tzinfo=UTC), 1798070400.0),
        (units.parse_time, 12.5, 12.5),
    ],
)
def test_what_people_write_is_read_in_base_units(parse, text, value):
    assert parse(text) == pytest.approx(value, rel=1e-15)


@pytest.mark.parametrize(
    ("parse", "value"),
    [
        (units.parse_bandwidth, "25GBps"),  # bytes, off by eight: not guessed
        (units.parse_bandwidth, "25G"),
        (units.parse_bandwidth, "fast"),
        (units.parse_bandwidth, "-1Gbps"),
        (units.parse_bandwidth, float("nan")),
        (units.parse_bandwidth, float("inf")),
        (units.parse_bandwidth, True),
        (units.parse_bandwidth, None),
        (units.parse_bandwidth, "1e999Gbps"),
        (units.parse_bandwidth, 10**400),
        (units.parse_bytes, "80G"),
        (units.parse_bytes, "80Gbit"),
        (units.parse_bytes, ""),
        (units.parse_bytes, [1]),
        (units.parse_duration, ""),
        (units.parse_duration, "6"),
        (units.parse_duration, "6 parsecs"),
        (units.parse_duration, "1h-30m"),
        (units.parse_duration, -1),
        (units.parse_time, "2026-12-24T00:00:00"),  # no zone: whose midnight?
        (units.parse_time, datetime(2026, 12, 24)),  # noqa: DTZ001 - the point of the case
        (units.parse_time, "yesterday"),
    ],
)
def test_what_cannot_be_meant_names_field_value_and_remedy(parse, value):
    with pytest.raises(InvalidValueError) as caught:
        parse(value, field="here.it.is")
    assert caught.value.field == "here.it.is"
    assert caught.value.expected
    assert "here.it.is" in str(caught.value)


@pytest.mark.parametrize("parse", [units.parse_bandwidth, units.parse_duration, units.parse_time])
def test_a_number_is_offered_to_who_gave_a_number_and_what_is_offered_is_right(parse):
    with pytest.raises(InvalidValueError) as text:
        parse("5")
    with pytest.raises(InvalidValueError) as number:
        parse(-1)
    assert "a number of" not in text.value.expected
    assert "a number of" in number.value.expected
    for example in re.findall(r'"([^"]+)"', text.value.expected + number.value.expected):
        assert parse(example) > 0


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (units.format_bandwidth(25e9), "25 Gbps"),
        (units.format_bandwidth(float("inf")), "unlimited"),
        (units.format_bytes(80e9), "80 GB"),
        (units.format_bytes(0), "0 B"),
        (units.format_duration(0), "0s"),
        (units.format_duration(0.0123), "12.3ms"),
        (units.format_duration(45.2), "45.2s"),
        (units.format_duration(59.999), "1m"),
        (units.format_duration(90), "1m30s"),
        (units.format_duration(3599.9), "1h"),
        (units.format_duration(5400), "1h30m"),
        (units.format_duration(187200), "2d4h"),
        (units.format_duration(-60), "-1m"),
        (units.format_duration(float("nan")), "unknown"),
        (units.format_usd(1234.561), "$1,234.56"),
        (units.format_usd(-0.004254), "-$0.00425"),
        (units.format_usd(0), "$0.00"),
        (units.format_time(1798070400.2), "2026-12-24T00:00:00Z"),
    ],
)
def test_quantities_are_shown_as_people_read_them(text, shown):
    assert text == shown


@given(st.floats(min_value=1e-3, max_value=1e17))
def test_what_is_shown_can_be_read_back(value):
    assert units.parse_bandwidth(units.format_bandwidth(value)) == pytest.approx(value, rel=5e-4)
    assert units.parse_bytes(units.format_bytes(value)) == pytest.approx(value, rel=5e-4)


@given(st.floats(min_value=1e-3, max_value=1e8))
def test_a_shown_duration_can_be_read_back(value):
    # Two units: what is left off is under half of the smaller one.
    assert units.parse_duration(units.format_duration(value)) == pytest.approx(value, rel=1 / 48)


@given(st.integers(min_value=0, max_value=4_000_000_000))
def test_a_shown_time_is_the_same_second(value):
    assert units.parse_time(units.format_time(value)) == value
