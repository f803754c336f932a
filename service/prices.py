"""Typed series of prices: set, imported, corrected, read. Nothing that was known is ever overwritten."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from scheduler.cluster import Ownership
from scheduler.spec.csv_text import parse_csv
from scheduler.spec.issues import SpecError
from scheduler.spec.prices import Known, PriceTable, PriceUnit
from service import limits, topics
from service.access import Principal
from service.db.records import PointRecord, PoolRecord, SeriesRecord
from service.db.repositories import cluster, events, leader, prices
from service.db.session import Session
from service.db.tables import SHARED_PROJECT
from service.errors import ConflictError, FieldError, InvalidInputError, NotFoundError, TooLargeError
from service.job_input import refusal
from service.services import Services

SERIES_UNIT = {
    "electricity": "usd_per_kwh",
    "rent": "usd_per_gpu_hour",
    "egress": "usd_per_gb",
    "carbon": "g_per_kwh",
}
"""The unit in which each kind is stored."""
_FACTOR = {
    ("electricity", "usd_per_kwh"): 1.0,
    ("electricity", "usd_per_mwh"): 1e-3,
    ("rent", "usd_per_gpu_hour"): 1.0,
    ("egress", "usd_per_gb"): 1.0,
    ("carbon", "g_per_kwh"): 1.0,
}
_NEVER_NEGATIVE = frozenset({"rent", "egress", "carbon"})
CURRENCY = "USD"


@dataclass(frozen=True, slots=True)
class Subject:
    """What is priced, in which unit the values are given (None: the series' own), and who says so."""

    kind: str
    region: str
    gpu_type: str | None
    dst: str | None
    unit: str | None
    source: str


@dataclass(frozen=True, slots=True)
class Point:
    """A value from a moment on; `known_at_s` None: known from now on."""

    valid_from_s: float
    value: float
    known_at_s: float | None = None


@dataclass(frozen=True, slots=True)
class SeriesView:
    """A series, its price now, and (where asked for) its points."""

    series: SeriesRecord
    value_now: float | None
    unused_because: str | None
    """Of a rent that nothing is billed by at present: why."""
    points: tuple[PointRecord, ...] = ()


@dataclass(frozen=True, slots=True)
class Imported:
    """How many points were given, and how many said something new."""

    series_id: str
    points: int
    new_points: int
    unused_because: str | None


async def list_all(services: Services, *, kind: str | None, region: str | None) -> list[SeriesView]:
    """Series of a kind and region (None: of all), each with its price now."""
    now_s = services.clock.now()

    def work(session: Session) -> list[SeriesView]:
        found = prices.series(session, kind=kind, region=region)
        return _views(session, found, now_s)

    return await services.db.read(work)


async def show(services: Services, series_id: str, from_s: float, to_s: float) -> SeriesView:
    """One series with its points in [from_s, to_s] and the one that holds at its start. Raises NotFoundError."""
    now_s = services.clock.now()

    def work(session: Session) -> SeriesView:
        series = prices.get(session, series_id)
        if series is None:
            raise NotFoundError(
                f"there is no price series {series_id[:64]}: GET /v1/prices shows those there are"
            )
        points = prices.points(session, [series_id], from_s=from_s, to_s=to_s, known_by_s=now_s)
        if len(points) > limits.MAX_PRICE_POINTS:
            raise TooLargeError(
                f"{len(points)} points lie in this span, at most {limits.MAX_PRICE_POINTS} are told: ask for less"
            )
        return replace(_views(session, [series], now_s)[0], points=tuple(points))

    return await services.db.read(work)


async def put(
    services: Services, principal: Principal, subject: Subject, value: float, valid_from_s: float | None
) -> SeriesView:
    """One price from a moment on; by default from now, or from ever where the series has no price yet."""
    now_s = services.clock.now()

    def work(session: Session) -> SeriesView:
        series, is_new = _series(session, services, subject)
        start = (0.0 if is_new else now_s) if valid_from_s is None else valid_from_s
        _add(session, series, subject, [Point(start, value)], now_s)
        _tell(session, series, principal, now_s, {"value": value, "valid_from_s": start})
        return _views(session, [series], now_s)[0]

    view = await services.db.run(work)
    await services.bus.publish(topics.PLANNING)
    return view


async def import_points(
    services: Services, principal: Principal, subject: Subject, points: Sequence[Point]
) -> Imported:
    """A whole series at once. What repeats a stored value is left out; a correction is known later than the corrected.

    Raises InvalidInputError for times out of order, ConflictError for another value with no later `known_at_s`.
    """
    now_s = services.clock.now()
    for index in range(1, len(points)):
        if points[index].valid_from_s <= points[index - 1].valid_from_s:
            raise _wrong(
                f"/points/{index}/valid_from_s", points[index].valid_from_s, "a time after the point before"
            )

    def work(session: Session) -> Imported:
        series, _ = _series(session, services, subject)
        new = _add(session, series, subject, points, now_s)
        if new:
            _tell(session, series, principal, now_s, {"points": new})
        (view,) = _views(session, [series], now_s)
        return Imported(series.series_id, len(points), new, view.unused_because)

    imported = await services.db.run(work)
    await services.bus.publish(topics.PLANNING)
    return imported


def read_csv(text: str, column: str, known: str | None) -> list[Point]:
    """An hourly CSV (UTC, the hour's start) as points, in the values' own unit.

    `known` is `day-ahead` or `real-time`; None: known from now on. Raises InvalidInputError that names the row.
    """
    try:
        table = PriceTable(parse_csv(text, "body"))
        series = table.series(column, PriceUnit.USD_PER_KWH, Known(known or Known.REAL_TIME))
    except SpecError as error:
        raise refusal(error.issues) from None
    return [
        Point(valid, value, None if known is None else published)
        for valid, value, published in zip(series.valid_from_s, series.values, series.known_at_s, strict=True)
    ]


def _series(session: Session, services: Services, subject: Subject) -> tuple[SeriesRecord, bool]:
    """The series of a subject, made if need be."""
    _check_subject(session, subject)
    gpu_type, dst = subject.gpu_type or "", subject.dst or ""
    found = prices.find(session, subject.kind, subject.region, gpu_type, dst)
    if found is not None:
        if found.source != subject.source:
            prices.change_source(session, found.series_id, subject.source)
        return replace(found, source=subject.source), False
    series = SeriesRecord(
        series_id=services.ids.new("price"),
        kind=subject.kind,
        region=subject.region,
        gpu_type=gpu_type,
        dst=dst,
        unit=SERIES_UNIT[subject.kind],
        currency=CURRENCY,
        source=subject.source,
    )
    prices.add(session, series)
    return series, True


def _check_subject(session: Session, subject: Subject) -> None:
    known = [record.region for record in cluster.regions(session)]
    there_are = f"a region there is: {', '.join(known) or 'none yet'}"
    if subject.region not in known:
        raise _wrong("/region", subject.region, there_are)
    if (subject.kind == "rent") != (subject.gpu_type is not None):
        raise _wrong("/gpu_type", subject.gpu_type, "a GPU type for a rent, and none for any other kind")
    if (subject.kind == "egress") != (subject.dst is not None):
        raise _wrong("/dst", subject.dst, "a region for an egress price, and none for any other kind")
    if subject.dst is not None and (subject.dst not in known or subject.dst == subject.region):
        raise _wrong("/dst", subject.dst, f"another region than {subject.region}, {there_are}")
    if subject.unit is not None and (subject.kind, subject.unit) not in _FACTOR:
        units = ", ".join(unit for kind, unit in _FACTOR if kind == subject.kind)
        raise _wrong("/unit", subject.unit, f"{units} for a price of {subject.kind}")


def _add(
    session: Session, series: SeriesRecord, subject: Subject, points: Sequence[Point], now_s: float
) -> int:
    """Stores what is new of the points; how many."""
    factor = _FACTOR[series.kind, subject.unit or series.unit]
    stored = prices.points(
        session,
        [series.series_id],
        from_s=points[0].valid_from_s,
        to_s=points[-1].valid_from_s,
        known_by_s=float("inf"),
    )
    latest = {point.valid_from_s: point for point in stored}
    new: list[tuple[float, float, float]] = []
    for index, point in enumerate(points):
        value, known_at_s = point.value * factor, now_s if point.known_at_s is None else point.known_at_s
        if value < 0 and series.kind in _NEVER_NEGATIVE:
            raise _wrong(f"/points/{index}/value", point.value, f"0 or more for a price of {series.kind}")
        before = latest.get(point.valid_from_s)
        if before is not None and before.value == value:
            continue
        if before is not None and known_at_s <= before.known_at_s:
            raise ConflictError(
                f"points/{index}: {before.value} {series.unit} is known for that time since {before.known_at_s}; "
                f"a correction has a known_at_s after that, not {known_at_s}"
            )
        new.append((point.valid_from_s, known_at_s, value))
    if new:
        prices.add_points(session, series.series_id, new)
        leader.capacity_changed(session)
    return len(new)


def _views(session: Session, series: Sequence[SeriesRecord], now_s: float) -> list[SeriesView]:
    ids = [record.series_id for record in series]
    points = prices.points(session, ids, from_s=now_s, to_s=now_s, known_by_s=now_s)
    now = {point.series_id: point.value for point in points}
    pools = cluster.pools(session) if any(record.kind == "rent" for record in series) else []
    return [
        SeriesView(record, now.get(record.series_id), _unused_because(record, pools)) for record in series
    ]


def _unused_because(series: SeriesRecord, pools: Sequence[PoolRecord]) -> str | None:
    """The GPUs may be rented yet, or meant to come: so it is told, and not refused."""
    if series.kind != "rent":
        return None
    ownership = {pool.gpu_type: pool.ownership for pool in pools if pool.region == series.region}
    if series.gpu_type not in ownership:
        known = ", ".join(ownership) or "none yet"
        return f"no node in {series.region} has {series.gpu_type}; its GPU types are: {known}"
    if ownership[series.gpu_type] != Ownership.RENTED:
        return f"{series.gpu_type} in {series.region} are owned: rent counts only where GPUs are rented"
    return None


def _wrong(pointer: str, value: object, expected: str) -> InvalidInputError:
    field = pointer.strip("/").replace("/", ".")
    return InvalidInputError(
        f"{field}: expected {expected}", errors=(FieldError(pointer, f"expected {expected}", value=value),)
    )


def _tell(
    session: Session, series: SeriesRecord, principal: Principal, at_s: float, data: dict[str, float]
) -> None:
    subject = {
        "price_kind": series.kind,
        "region": series.region,
        "gpu_type": series.gpu_type,
        "dst": series.dst,
    }
    events.append(
        session,
        project=SHARED_PROJECT,
        at_s=at_s,
        kind="price.changed",
        object_kind="price",
        object_id=series.series_id,
        actor=principal.token_id,
        data=subject | data,
    )
