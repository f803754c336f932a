"""Price and link files: units, publication times, and the row that is wrong."""

from __future__ import annotations

import pytest

from scheduler.spec.csv_text import parse_csv
from scheduler.spec.issues import SpecError
from scheduler.spec.links import read_links
from scheduler.spec.prices import Known, PriceTable, PriceUnit, known_at_s, repeated_daily
from scheduler.units import parse_time

HOUR_S = 3600.0


def table(*rows: str, header: str = "timestamp_utc,a,b") -> PriceTable:
    return PriceTable(parse_csv("\n".join([header, *rows]), "prices.csv"))


def test_prices_are_usd_per_kwh_from_the_start_of_their_hour_and_may_be_negative() -> None:
    prices = table("2026-03-01T00:00Z,50,0.05", "2026-03-01T01:00Z,-541.1,-0.5411")
    by_mwh = prices.series("a", PriceUnit.USD_PER_MWH, Known.REAL_TIME)
    by_kwh = prices.series("b", PriceUnit.USD_PER_KWH, Known.REAL_TIME)
    start_s = parse_time("2026-03-01T00:00:00Z")
    assert by_mwh.values == by_kwh.values == (0.05, -0.5411)
    assert by_mwh.at(start_s + HOUR_S - 1e-3) == 0.05
    assert by_mwh.at(start_s + HOUR_S) == -0.5411
    assert by_mwh.at(start_s + 2 * HOUR_S) is None


@pytest.mark.parametrize("hour", ["2026-03-02T00:00:00Z", "2026-03-02T13:00:00Z", "2026-03-02T23:00:00Z"])
def test_day_ahead_prices_are_known_at_noon_of_the_day_before(hour: str) -> None:
    assert known_at_s(parse_time(hour), Known.DAY_AHEAD) == parse_time("2026-03-01T12:00:00Z")


def test_real_time_prices_are_known_when_their_hour_is_over() -> None:
    assert known_at_s(7200.0, Known.REAL_TIME) == 10800.0


@pytest.mark.parametrize(
    ("rows", "line", "trouble"),
    [
        (["2026-03-01T00:00Z,1,1", "2026-03-01T02:00Z,1,1"], 3, "a gap of 1 hours"),
        (["2026-03-01T00:00Z,1,1", "2026-03-01T01:00Z,1,1", "2026-03-01T01:00Z,1,1"], 4, "a duplicate hour"),
        (["2026-03-01T05:00Z,1,1", "2026-03-01T04:00Z,1,1"], 3, "an hour out of order"),
        (["2026-03-01T00:30Z,1,1"], 2, "2026-03-01T00:30Z"),
        (["2026-03-01T00:00+02:00,1,1"], 2, "+02:00"),
        (["yesterday,1,1"], 2, "yesterday"),
        ([], 2, "no rows"),
    ],
)
def test_hours_that_do_not_follow_each_other_are_an_error_that_names_the_row(
    rows: list[str], line: int, trouble: str
) -> None:
    with pytest.raises(SpecError) as caught:
        table(*rows)
    assert caught.value.issues[0].line == line
    assert trouble in str(caught.value.issues[0].value)


def test_a_time_without_a_zone_counts_as_utc_only_where_the_column_says_so() -> None:
    assert table("2026-03-01T00:00,1,1").series("a", PriceUnit.USD_PER_KWH, Known.REAL_TIME).values == (1.0,)
    with pytest.raises(SpecError, match="in UTC"):
        table("2026-03-01T00:00,1,1", header="time,a,b")


@pytest.mark.parametrize("cell", ["", "nan", "inf", "dear"])
def test_a_cell_that_is_no_price_names_its_row(cell: str) -> None:
    prices = table("2026-03-01T00:00Z,1,1", f"2026-03-01T01:00Z,1,{cell}")
    with pytest.raises(SpecError) as caught:
        prices.series("b", PriceUnit.USD_PER_MWH, Known.DAY_AHEAD)
    assert caught.value.issues[0].line == 3
    with pytest.raises(SpecError, match="timestamp_utc, a, b"):
        prices.series("c", PriceUnit.USD_PER_MWH, Known.DAY_AHEAD)


def test_a_price_of_every_day_repeats_by_the_hour_of_utc() -> None:
    start_s = parse_time("2026-03-01T07:30:00Z")
    series = repeated_daily(tuple(float(hour) for hour in range(24)), start_s)
    assert [series.at(start_s + hour * HOUR_S) for hour in (0, 1, 17, 24, 24 * 365)] == [7, 8, 0, 7, 7]
    assert series.known(start_s).at(start_s + 5 * HOUR_S) == 12


LINKS = "src,dst,speed,rtt_ms,egress_usd_per_gb\n"


def test_links_are_directed_in_si_and_only_those_of_the_scenario() -> None:
    text = LINKS + "a,b,4.5,60,0.02\nb,a,5,60,0.09\na,mars,1,1,1\n"
    links = read_links(parse_csv(text, "links.csv"), {"gbps": "speed"}, {"a", "b"})
    assert set(links) == {("a", "b"), ("b", "a")}
    assert (links["a", "b"].capacity_bps, links["a", "b"].latency_s) == (4.5e9, 0.03)
    assert links["b", "a"].egress_usd_per_gb == 0.09


@pytest.mark.parametrize(
    ("rows", "line"),
    [
        ("a,b,1,1,0\na,b,1,1,0\n", 3),
        ("a,b,nan,1,0\n", 2),
        ("a,b,-1,1,0\n", 2),
        ("a,a,1,1,0\n", 2),
        ("a,b,1,1\n", 2),
    ],
)
def test_a_bad_link_names_its_row(rows: str, line: int) -> None:
    with pytest.raises(SpecError) as caught:
        read_links(parse_csv(LINKS + rows, "links.csv"), {"gbps": "speed"}, {"a", "b"})
    assert caught.value.issues[0].line == line


def test_a_column_that_is_not_there_is_named_with_those_that_are() -> None:
    with pytest.raises(SpecError, match="src, dst, speed"):
        read_links(parse_csv(LINKS, "links.csv"), {}, {"a", "b"})
