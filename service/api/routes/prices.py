"""`/v1/prices`: set, import, read."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request
from pydantic import TypeAdapter, ValidationError

from scheduler.spec.issues import pointer_of
from service import limits, prices
from service.api.access import Caller, Injected
from service.api.answers import REFUSALS, Moment, ObjectId
from service.api.schemas.base import GpuTypeName, Page, RegionName, inlined
from service.api.schemas.prices import (
    GivenPoint,
    Imported,
    ImportPrices,
    Kind,
    PriceHistory,
    PriceSeries,
    PutPrice,
    Source,
    Unit,
)
from service.api.strict_json import StrictRoute, loads
from service.errors import FieldError, InvalidInputError, TooLargeError, without_kind

router = APIRouter(prefix="/v1/prices", tags=["prices"], route_class=StrictRoute, responses=REFUSALS)

DEFAULT_SPAN_S = 86_400.0
_IMPORT = TypeAdapter(ImportPrices)
_IMPORT_BODIES = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {"schema": inlined(ImportPrices.model_json_schema())},
            "text/csv": {
                "schema": {"type": "string", "maxLength": limits.MAX_BODY_BYTES},
                "example": "timestamp_utc,eu-west\n2026-11-30T00:00Z,181.0\n2026-11-30T01:00Z,172.5\n",
            },
        },
    }
}


@router.get("", response_model=Page[PriceSeries])
async def list_series(
    services: Injected, principal: Caller, kind: Kind | None = None, region: RegionName | None = None
) -> Page[PriceSeries]:
    """What is priced, and the prices now."""
    found = await prices.list_all(services, kind=kind, region=region)
    return Page(items=[PriceSeries.of(view) for view in found])


@router.put("", response_model=PriceSeries)
async def put_price(services: Injected, principal: Caller, body: PutPrice) -> PriceSeries:
    """One price from a moment on."""
    view = await prices.put(services, principal, body.subject(), body.value, body.valid_from_s)
    return PriceSeries.of(view)


@router.post("/import", response_model=Imported, openapi_extra=_IMPORT_BODIES)
async def import_prices(
    request: Request,
    services: Injected,
    principal: Caller,
    kind: Annotated[Kind | None, Query(description="of a CSV body")] = None,
    region: Annotated[RegionName | None, Query(description="of a CSV body")] = None,
    gpu_type: Annotated[GpuTypeName | None, Query(description="of a CSV body of rents")] = None,
    dst: Annotated[RegionName | None, Query(description="of a CSV body of egress prices")] = None,
    unit: Annotated[Unit | None, Query(description="of the values of a CSV body")] = None,
    source: Annotated[Source, Query(description="who published a CSV body")] = "imported",
    column: Annotated[
        str | None, Query(max_length=255, description="column of a CSV body; default: region")
    ] = None,
    known: Annotated[
        Literal["day-ahead", "real-time"] | None,
        Query(description="when the hours of a CSV body were published; default: they are known from now on"),
    ] = None,
) -> Imported:
    """A series at once: JSON, or an hourly CSV (a time column in UTC, a column of values)."""
    body = await request.body()
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "text/csv":
        given = _parsed(loads(body))
        points = [_point(point) for point in given.points]
        return Imported.model_validate(
            await prices.import_points(services, principal, given.subject(), points)
        )
    if kind is None or region is None:
        missing = "kind" if kind is None else "region"
        raise InvalidInputError(
            f"{missing}: expected it in the query, beside a CSV body",
            errors=(
                FieldError(f"/{missing}", "expected a value beside a CSV body", "missing", where="query"),
            ),
        )
    points = prices.read_csv(_text(body), column or region, known)
    if len(points) > limits.MAX_PRICE_POINTS:
        raise TooLargeError(f"body: expected at most {limits.MAX_PRICE_POINTS} rows, not {len(points)}")
    subject = prices.Subject(kind, region, gpu_type, dst, unit, source)
    return Imported.model_validate(await prices.import_points(services, principal, subject, points))


@router.get("/{series_id}", response_model=PriceHistory)
async def show_series(
    services: Injected,
    principal: Caller,
    series_id: ObjectId,
    from_s: Annotated[Moment, Query(alias="from")] = None,
    to_s: Annotated[Moment, Query(alias="to")] = None,
) -> PriceHistory:
    """A series with its points from `from` to `to` (default: a day back, a day on) and the one in force at `from`."""
    now_s = services.clock.now()
    start = now_s - DEFAULT_SPAN_S if from_s is None else from_s
    end = now_s + DEFAULT_SPAN_S if to_s is None else to_s
    return PriceHistory.of(await prices.show(services, series_id, start, end))


def _parsed(document: Any) -> ImportPrices:
    try:
        return _IMPORT.validate_python(document)
    except ValidationError as error:
        found = error.errors(include_url=False)[: limits.MAX_ERRORS_SHOWN]
        raise InvalidInputError(
            "not valid: " + ", ".join(".".join(map(str, entry["loc"])) or "body" for entry in found),
            errors=tuple(
                FieldError(
                    pointer_of(entry["loc"]), without_kind(entry["msg"]), entry["type"], entry.get("input")
                )
                for entry in found
            ),
        ) from None


def _point(given: GivenPoint) -> prices.Point:
    return prices.Point(given.valid_from_s, given.value, given.known_at_s)


def _text(body: bytes) -> str:
    try:
        return body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidInputError(f"body: expected CSV in UTF-8: byte {error.start} is not") from None
