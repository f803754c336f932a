"""The kinds of field that job files and scenarios are made of: bounded, and parsed from human units."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PlainValidator, Strict, WithJsonSchema
from pydantic_core import PydanticCustomError

from scheduler.errors import InvalidValueError
from scheduler.units import parse_bandwidth, parse_bytes, parse_duration, parse_time

MAX_QUANTITY_TEXT = 64
"""Characters of a number with its unit."""


class Section(BaseModel):
    """A part of a document: immutable, and strict about what it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


def refuse(expected: str) -> PydanticCustomError:
    """The error of a validator: `expected` says what would be right."""
    return PydanticCustomError("expected", "{expected}", {"expected": expected})


def _quantity(parse: Callable[..., float], at_least: float, at_most: float, example: str) -> Any:
    """A validator for a number with a unit, between bounds in SI."""

    def read(value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise refuse(f"a value like {example}")
        if isinstance(value, str) and len(value) > MAX_QUANTITY_TEXT:
            raise refuse(f"a value like {example}")
        try:
            parsed = parse(value, field="value")
        except InvalidValueError as error:
            raise refuse(error.expected) from error
        if not at_least <= parsed <= at_most:
            raise refuse(f"a value like {example}, between {at_least:g} and {at_most:g}")
        return parsed

    return PlainValidator(read)


def _schema(at_least: float, at_most: float, *examples: str) -> WithJsonSchema:
    """How such a validator shows in a JSON schema."""
    number = {"type": "number", "minimum": at_least, "maximum": at_most}
    text = {"type": "string", "maxLength": MAX_QUANTITY_TEXT}
    return WithJsonSchema({"anyOf": [text, number], "examples": list(examples)})


def _no_uri(path: str) -> str:
    if "://" in path:
        raise refuse("a path on the nodes, not a URI: nothing is fetched from elsewhere")
    return path


def _no_parent(text: str) -> str:
    if ".." in text.split("/") or "\\" in text:
        raise refuse("a path without `..`")
    return text


def _no_dots(text: str) -> str:
    if ".." in text:
        raise refuse("a name without `..`")
    return text


def _printable(text: str) -> str:
    if any(ord(character) < 32 or ord(character) == 127 for character in text):
        raise refuse("text without control characters")
    return text


Duration = Annotated[
    float,
    _quantity(parse_duration, 0, 1e10, "90s, 30m or 6h"),
    _schema(0, 1e10, "120s", "6h"),
]
Bytes = Annotated[
    float,
    _quantity(parse_bytes, 0, 1e18, "200GB or 16GiB"),
    _schema(0, 1e18, "200GB"),
]
PositiveBytes = Annotated[
    float,
    _quantity(parse_bytes, 1, 1e18, "80GB or 16GiB"),
    _schema(1, 1e18, "80GB"),
]
Bandwidth = Annotated[
    float,
    _quantity(parse_bandwidth, 1, 1e17, "25Gbps"),
    _schema(1, 1e17, "25Gbps"),
]
Time = Annotated[
    float,
    _quantity(parse_time, 0, 1e11, "2026-12-24T00:00:00Z"),
    _schema(0, 1e11, "2026-12-24T00:00:00Z"),
]

Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,62}$")]
RegionName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,62}$"), AfterValidator(_no_dots)]
GpuName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$"), AfterValidator(_no_dots)]
RegionGlob = Annotated[str, Field(pattern=r"^[a-z0-9*?\[\]!._-]{1,63}$"), AfterValidator(_no_dots)]
Uri = Annotated[
    str,
    Field(pattern=r"^[a-z][a-z0-9+.-]{0,30}://[^\s]*$", max_length=1024),
    AfterValidator(_no_parent),
    AfterValidator(_printable),
]
FilePath = Annotated[
    str,
    Field(min_length=1, max_length=1024),
    AfterValidator(_no_parent),
    AfterValidator(_printable),
    AfterValidator(_no_uri),
]
Argument = Annotated[str, Field(max_length=4096, pattern=r"^[^\x00]*$")]


def whole(at_least: int, at_most: int) -> Any:
    """Bounds of a whole number, for Annotated[int, …]; text, booleans and fractions are refused."""
    return Field(strict=True, ge=at_least, le=at_most)


def number(*, above: float | None = None, at_least: float | None = None, at_most: float) -> Any:
    """Bounds of a finite number, for Annotated[float, …]; text and booleans are refused."""
    return Field(strict=True, gt=above, ge=at_least, le=at_most, allow_inf_nan=False)


Flag = Annotated[bool, Strict()]
