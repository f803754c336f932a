"""Price series and their points. A correction is a new point; nothing is overwritten."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import cast

from sqlalchemy import ColumnElement, Table, bindparam, func, insert, or_, select, update

from service.db.reader import Reader
from service.db.records import PointRecord, SeriesRecord
from service.db.session import Session
from service.db.tables import PricePointRow, PriceSeriesRow

_series = Reader(SeriesRecord, PriceSeriesRow)
_points = Reader(PointRecord, PricePointRow)
_BY_SUBJECT = [PriceSeriesRow.kind, PriceSeriesRow.region, PriceSeriesRow.gpu_type, PriceSeriesRow.dst]
_OF_KIND = _series.select(PriceSeriesRow.kind == bindparam("kind")).order_by(*_BY_SUBJECT)
_OF_SUBJECT = _series.select(
    PriceSeriesRow.kind == bindparam("of_kind"),
    PriceSeriesRow.region == bindparam("in_region"),
    PriceSeriesRow.gpu_type == bindparam("of_type"),
    PriceSeriesRow.dst == bindparam("to"),
)
_INSERT_POINTS = insert(cast("Table", PricePointRow.__table__))
_HOLDING = (
    select(PricePointRow.series_id, func.max(PricePointRow.valid_from_s).label("start"))
    .where(
        PricePointRow.series_id.in_(bindparam("series", expanding=True)),
        PricePointRow.valid_from_s <= bindparam("from_s"),
        PricePointRow.known_at_s <= bindparam("known_by_s"),
    )
    .group_by(PricePointRow.series_id)
    .subquery()
)
_POINTS = (
    _points.select(
        PricePointRow.series_id.in_(bindparam("series", expanding=True)),
        PricePointRow.valid_from_s <= bindparam("to_s"),
        PricePointRow.known_at_s <= bindparam("known_by_s"),
        or_(
            PricePointRow.valid_from_s >= bindparam("from_s"),
            PricePointRow.valid_from_s == _HOLDING.c.start,
        ),
    )
    .outerjoin(_HOLDING, _HOLDING.c.series_id == PricePointRow.series_id)
    .order_by(PricePointRow.series_id, PricePointRow.valid_from_s, PricePointRow.known_at_s)
)


def series(session: Session, *, kind: str | None = None, region: str | None = None) -> list[SeriesRecord]:
    """Of one kind, or region, or all: by kind, region, GPU type and destination."""
    if kind is not None and region is None:
        return _series.fetch(session, _OF_KIND, {"kind": kind})
    where: list[ColumnElement[bool]] = []
    if kind is not None:
        where.append(PriceSeriesRow.kind == kind)
    if region is not None:
        where.append(PriceSeriesRow.region == region)
    return _series.all(session, *where, order_by=_BY_SUBJECT)


def get(session: Session, series_id: str) -> SeriesRecord | None:
    return _series.get(session, series_id)


def find(session: Session, kind: str, region: str, gpu_type: str, dst: str) -> SeriesRecord | None:
    subject = {"of_kind": kind, "in_region": region, "of_type": gpu_type, "to": dst}
    found = _series.fetch(session, _OF_SUBJECT, subject)
    return found[0] if found else None


def add(session: Session, record: SeriesRecord) -> None:
    _series.add(session, record)


def change_source(session: Session, series_id: str, source: str) -> None:
    session.execute(update(PriceSeriesRow).where(PriceSeriesRow.series_id == series_id).values(source=source))


def add_points(session: Session, series_id: str, points: Sequence[tuple[float, float, float]]) -> None:
    """(valid_from_s, known_at_s, value) each. IntegrityError if one is there already with another value."""
    session.execute(
        _INSERT_POINTS,
        [
            {"series_id": series_id, "valid_from_s": valid, "known_at_s": known, "value": value}
            for valid, known, value in points
        ],
    )


def points(
    session: Session, series_ids: Collection[str], *, from_s: float, to_s: float, known_by_s: float
) -> list[PointRecord]:
    """Points valid somewhere in [from_s, to_s] that were known by a moment, with the one that holds at `from_s`.

    Ordered by series, validity and moment of publication: of several with one validity the last is in force.
    """
    if not series_ids:
        return []
    parameters = {"series": list(series_ids), "from_s": from_s, "to_s": to_s, "known_by_s": known_by_s}
    return _points.fetch(session, _POINTS, parameters)
