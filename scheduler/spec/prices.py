"""Electricity prices from CSV files or a scenario's own figures, with the moment from which each is known."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from enum import StrEnum

from scheduler.price import PriceSeries
from scheduler.spec.csv_text import CsvTable

HOUR_S = 3600.0
DAY_S = 86400.0
TIME_COLUMNS = ("timestamp_utc", "time_utc", "timestamp", "time")
_REPEATED_DAYS = 1100
_DAY_AHEAD_HOUR = 12  # UTC, of the day before


class PriceUnit(StrEnum):
    """The unit of the values in a file."""

    USD_PER_MWH = "usd_per_mwh"
    USD_PER_KWH = "usd_per_kwh"


class Known(StrEnum):
    """When a price is published: on the day before at 12:00 UTC, or when its hour is over."""

    DAY_AHEAD = "day-ahead"
    REAL_TIME = "real-time"


_PER_KWH = {PriceUnit.USD_PER_MWH: 1000.0, PriceUnit.USD_PER_KWH: 1.0}


def known_at_s(hour_s: float, known: Known) -> float:
    """When the price of the hour that starts at `hour_s` (epoch seconds, UTC) is published."""
    if known is Known.REAL_TIME:
        return hour_s + HOUR_S
    midnight_s = hour_s - hour_s % DAY_S
    return midnight_s - DAY_S + _DAY_AHEAD_HOUR * HOUR_S


class PriceTable:
    """An hourly price file: one time column (UTC, the hour's start), one column for each series."""

    def __init__(self, table: CsvTable) -> None:
        """Checks the hours. Raises SpecError that names the row of a gap, a duplicate or an hour out of order."""
        self._table = table
        self._hours = _hours(table)

    def series(self, column: str, unit: PriceUnit, known: Known) -> PriceSeries:
        """A column as USD per kWh; negative prices are legal. Raises SpecError for an unknown column or bad cell."""
        self._table.index(column)
        divisor = _PER_KWH[unit]
        values = tuple(self._table.number(row, column) / divisor for row in range(len(self._hours)))
        return PriceSeries(
            valid_from_s=self._hours,
            values=values,
            known_at_s=tuple(known_at_s(hour, known) for hour in self._hours),
            end_s=self._hours[-1] + HOUR_S,
        )


def repeated_daily(values_usd_per_kwh: tuple[float, ...], start_s: float) -> PriceSeries:
    """24 hourly prices (UTC) repeated daily from the day before `start_s` for three years, all known beforehand."""
    first_s = start_s - start_s % DAY_S - DAY_S
    hours = tuple(first_s + index * HOUR_S for index in range(24 * _REPEATED_DAYS))
    values = values_usd_per_kwh * _REPEATED_DAYS
    return PriceSeries(hours, values, (first_s,) * len(hours), hours[-1] + HOUR_S)


def _hours(table: CsvTable) -> tuple[float, ...]:
    column = next((name for name in TIME_COLUMNS if name in table.columns), None)
    if column is None:
        raise table.error(
            -1, "timestamp_utc", ", ".join(table.columns), f"a column {' or '.join(TIME_COLUMNS)}"
        )
    hours: list[float] = []
    for row, text in enumerate(table.cells(column)):
        hour = _hour(text.strip(), naive_is_utc=column.endswith("_utc"))
        if hour is None:
            raise table.error(row, column, text, "the start of an hour in UTC such as 2023-01-01T00:00Z")
        if hours and hour != hours[-1] + HOUR_S:
            trouble = _trouble(hour, hours)
            expected = f"{_iso(hours[-1] + HOUR_S)}, the hour after the row before it"
            raise table.error(row, column, f"{text} ({trouble})", expected)
        hours.append(hour)
    if not hours:
        raise table.error(0, column, "no rows", "a row for each hour")
    return tuple(hours)


def _trouble(hour: float, before: list[float]) -> str:
    if hour > before[-1]:
        return f"a gap of {(hour - before[-1]) / HOUR_S - 1:g} hours"
    return "a duplicate hour" if hour >= before[0] else "an hour out of order"


def _hour(text: str, *, naive_is_utc: bool) -> float | None:
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return None
    if time.tzinfo is None:
        if not naive_is_utc:
            return None
        time = time.replace(tzinfo=UTC)
    seconds = time.timestamp()
    return seconds if time.utcoffset() == timedelta(0) and seconds % HOUR_S == 0 else None


def _iso(time_s: float) -> str:
    return datetime.fromtimestamp(time_s, UTC).strftime("%Y-%m-%dT%H:%MZ")
