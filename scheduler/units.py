"""Quantities as people write them ("25Gbps", "80GB", "1h30m") to SI base units, and back.

Bandwidths are bits per second, sizes bytes (1 GB = 1e9 bytes, 1 GiB = 2**30), durations seconds, times epoch
seconds (UTC). A plain number is already in the base unit; a text of one is refused where its unit could be meant
otherwise (a latency of "5", a bandwidth of "25"). Every parser takes the name of the field first among
its options, so that an error names it: InvalidValueError(field, value, what would be right).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from types import MappingProxyType

from scheduler.errors import InvalidValueError

_NUMBER = r"(?P<number>[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?)"
_QUANTITY = re.compile(_NUMBER + r"\s*(?P<unit>[A-Za-z/]*)")
_DURATION_PART = re.compile(_NUMBER + r"\s*(?P<unit>ms|s|min|m|h|d|w)")

_DECIMAL: Mapping[str, float] = MappingProxyType(
    {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12, "p": 1e15}
)
_BINARY: Mapping[str, float] = MappingProxyType(
    {"ki": 2.0**10, "mi": 2.0**20, "gi": 2.0**30, "ti": 2.0**40, "pi": 2.0**50}
)
_DURATIONS: Mapping[str, float] = MappingProxyType(
    {"ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
)


def parse_bandwidth(value: object, *, field: str = "bandwidth") -> float:
    """Bits per second of `"25Gbps"`, `"100 Mbit/s"`, `"1.5Tbps"` or a number (bit/s).

    Byte units are refused, not guessed: `"3GBps"` is an error.
    """
    if isinstance(value, str):
        expected = 'a bandwidth of 0 or more with its unit, such as "25Gbps" or "100Mbps"'
        found = _QUANTITY.fullmatch(value.strip())
        if found is None:
            raise InvalidValueError(field, value, expected)
        prefix = _prefix_of(found["unit"], ("bps", "bit/s", "b/s"))
        if prefix is None:
            raise InvalidValueError(field, value, expected)
        return _finite(float(found["number"]) * _DECIMAL[prefix], value, field, expected)
    return _number(value, field, 'a bandwidth of 0 or more such as "25Gbps" or a number of bits per second')


def parse_bytes(value: object, *, field: str = "size") -> float:
    """Bytes of `"80GB"` (1e9), `"16GiB"` (2**30), `"512 kB"` or a number (bytes)."""
    expected = 'a size of 0 or more such as "80GB", "16GiB" or a number of bytes'
    if isinstance(value, str):
        found = _QUANTITY.fullmatch(value.strip())
        unit = found["unit"].lower() if found else ""
        scale = _BINARY.get(unit.removesuffix("b"), _DECIMAL.get(unit.removesuffix("b")))
        if found is None or scale is None or (unit and not unit.endswith("b")):
            raise InvalidValueError(field, value, expected)
        return _finite(float(found["number"]) * scale, value, field, expected)
    return _number(value, field, expected)


def parse_duration(value: object, *, field: str = "duration") -> float:
    """Seconds of `"6h"`, `"90s"`, `"1h30m"`, `"250ms"`, `"2d"` or a number (seconds)."""
    if isinstance(value, str):
        expected = 'a duration of 0 or more with its unit, such as "6h", "1h30m" or "90s"'
        text, at, total = value.strip(), 0, 0.0
        while at < len(text):
            found = _DURATION_PART.match(text, at)
            if found is None:
                raise InvalidValueError(field, value, expected)
            total += float(found["number"]) * _DURATIONS[found["unit"]]
            at = found.end()
            while at < len(text) and text[at] == " ":
                at += 1
        if not text:
            raise InvalidValueError(field, value, expected)
        return _finite(total, value, field, expected)
    return _number(value, field, 'a duration of 0 or more such as "6h", "90s" or a number of seconds')


def parse_time(value: object, *, field: str = "time") -> float:
    """Epoch seconds of `"2026-12-24T00:00:00Z"` (ISO 8601 with its zone), an aware datetime, or a number."""
    expected = 'a time with its zone such as "2026-12-24T00:00:00Z"'
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value.strip())
        except ValueError as error:
            raise InvalidValueError(field, value, expected) from error
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise InvalidValueError(field, value.isoformat(), expected)
        return value.timestamp()
    return _number(value, field, f"{expected} or a number of seconds since 1970")


def format_bandwidth(bandwidth_bps: float) -> str:
    """`25 Gbps`; four significant digits."""
    return "unlimited" if math.isinf(bandwidth_bps) else _scaled(bandwidth_bps, "bps")


def format_bytes(size_bytes: float) -> str:
    """`80 GB` (decimal); four significant digits."""
    return _scaled(size_bytes, "B")


def format_duration(duration_s: float) -> str:
    """`1h30m`, `2d4h`, `45.2s`, `12ms`: the two largest units; below a minute four significant digits."""
    if not math.isfinite(duration_s):
        return "unknown"
    if duration_s < 0:
        return "-" + format_duration(-duration_s)
    if duration_s == 0:
        return "0s"
    if duration_s < 1:
        return f"{duration_s * 1e3:.4g}ms"
    if duration_s < 59.995:
        return f"{duration_s:.4g}s"
    rest = round(duration_s)
    if rest >= 86400:
        rest = round(duration_s / 3600) * 3600
    elif rest >= 3600:
        rest = round(duration_s / 60) * 60
    parts = []
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        count, rest = divmod(rest, length)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts[:2])


def format_usd(amount_usd: float) -> str:
    """`$1,234.56`; below a dollar three significant digits (`$0.00425`)."""
    sign = "-" if amount_usd < 0 else ""
    size = abs(amount_usd)
    if size == 0 or size >= 0.995:
        return f"{sign}${size:,.2f}"
    digits = max(2, 2 - math.floor(math.log10(size)))
    return f"{sign}${size:.{digits}f}"


def format_time(time_s: float) -> str:
    """`2026-12-24T00:00:00Z`; whole seconds."""
    return datetime.fromtimestamp(round(time_s), tz=UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _prefix_of(unit: str, suffixes: tuple[str, ...]) -> str | None:
    for suffix in suffixes:
        # The b must be a small one: B is a byte, and guessing would be wrong by a factor of eight.
        if unit.endswith(suffix) and unit.removesuffix(suffix).lower() in _DECIMAL:
            return unit.removesuffix(suffix).lower()
    return None


def _number(value: object, field: str, expected: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidValueError(field, value, expected)
    return _finite(value, value, field, expected)


def _finite(number: float, value: object, field: str, expected: str) -> float:
    try:
        number = float(number)
    except OverflowError as error:
        raise InvalidValueError(field, value, expected) from error
    if not (math.isfinite(number) and number >= 0):
        raise InvalidValueError(field, value, expected)
    return number


def _scaled(value: float, unit: str) -> str:
    for prefix, scale in (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(value) >= scale:
            return f"{value / scale:.4g} {prefix}{unit}"
    return f"{value:.4g} {unit}"
