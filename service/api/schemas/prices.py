"""Typed series of prices."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field

from service import prices
from service.api.schemas.base import Answer, Body, GpuTypeName, RegionName, body_example, example, flat

Kind = Literal["electricity", "rent", "egress", "carbon"]
Unit = Literal["usd_per_kwh", "usd_per_mwh", "usd_per_gpu_hour", "usd_per_gb", "g_per_kwh"]
Value = Annotated[float, Field(ge=-1e6, le=1e6)]
Time = Annotated[float, Field(ge=0, le=1e11, description="epoch seconds, UTC")]
Source = Annotated[str, Field(min_length=1, max_length=255, pattern=r"^[^\x00-\x1f\x7f]*$")]

POINT = {"valid_from_s": 1764460800.0, "known_at_s": 1764417600.0, "value": 0.181}
SERIES = {
    "series_id": "price-01kb9wvv00000000000000000",
    "kind": "electricity",
    "region": "eu-west",
    "gpu_type": None,
    "dst": None,
    "unit": "usd_per_kwh",
    "currency": "USD",
    "source": "day-ahead auction",
    "value_now": 0.181,
    "unused_because": None,
}


class PricePoint(Answer):
    """A value that holds from `valid_from_s` until the next point; published at `known_at_s`."""

    model_config = example(POINT)

    valid_from_s: float
    known_at_s: float
    value: float


class PriceSeries(Answer):
    """What is priced, and the price that holds now as it is known now (null: none)."""

    model_config = example(SERIES)

    series_id: str
    kind: str
    region: str
    gpu_type: str | None
    """Of a rent."""
    dst: str | None
    """Of an egress: from `region` to `dst`."""
    unit: str
    currency: str
    source: str
    value_now: float | None
    unused_because: str | None
    """Of a rent that nothing is billed by at present: why. No node may have such GPUs (yet), or they are owned."""

    @classmethod
    def of(cls, view: prices.SeriesView) -> Self:
        series = flat(
            view.series, value_now=view.value_now, unused_because=view.unused_because, points=view.points
        )
        return cls.model_validate(
            series | {"gpu_type": series["gpu_type"] or None, "dst": series["dst"] or None}
        )


class PriceHistory(PriceSeries):
    """A series with its points in a span of time, corrections included: of one validity the last known holds."""

    model_config = example({**SERIES, "points": [POINT]})

    points: list[PricePoint]


class Imported(Answer):
    """What an import has done."""

    model_config = example(
        {"series_id": SERIES["series_id"], "points": 24, "new_points": 24, "unused_because": None}
    )

    series_id: str
    points: int
    new_points: int
    """Points that said something new; those that repeat what is stored are left out."""
    unused_because: str | None
    """As of the series."""


class Subject(Body):
    """What is priced. Rent is by GPU type (`gpu_type`), egress by destination (`dst`)."""

    kind: Kind
    region: RegionName
    gpu_type: GpuTypeName | None = None
    dst: RegionName | None = None
    unit: Unit | None = None
    """Of the values given. Left out: the series' own (usd_per_kwh, usd_per_gpu_hour, usd_per_gb, g_per_kwh)."""
    source: Source = "set by hand"

    def subject(self) -> prices.Subject:
        """As the use-case takes it."""
        return prices.Subject(self.kind, self.region, self.gpu_type, self.dst, self.unit, self.source)


class PutPrice(Subject):
    """One price from a moment on: from now, or from ever if the series has no price yet."""

    model_config = body_example({"kind": "electricity", "region": "eu-west", "value": 0.181})

    value: Value
    valid_from_s: Time | None = None


class GivenPoint(Body):
    """A point of an import. `known_at_s` left out: now."""

    model_config = body_example(POINT)

    valid_from_s: Time
    value: Value
    known_at_s: Time | None = None


class ImportPrices(Subject):
    """A series of prices, in ascending order of time."""

    model_config = body_example(
        {
            "kind": "electricity",
            "region": "eu-west",
            "unit": "usd_per_mwh",
            "source": "day-ahead auction",
            "points": [{"valid_from_s": 1764460800.0, "value": 181.0}],
        }
    )

    points: Annotated[list[GivenPoint], Field(min_length=1, max_length=20_000)]
