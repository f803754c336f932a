"""Stored prices as decisions see them: what was known at a moment."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate, groupby

from scheduler.price import KnownPrices, PriceSeries
from service.db.records import PointRecord
from service.db.repositories import prices
from service.db.session import Session

PRICE_LOOKBACK_S = 14 * 86_400.0
"""How much of the past of a price a decision may look at, to forecast."""


def electricity(session: Session, now_s: float) -> dict[str, KnownPrices]:
    """USD per kWh of each region that has any price, as known at `now_s`."""
    series = prices.series(session, kind="electricity")
    region_of = {record.series_id: record.region for record in series}
    points = prices.points(
        session,
        list(region_of),
        from_s=now_s - PRICE_LOOKBACK_S,
        to_s=math.inf,
        known_by_s=now_s,
    )
    told = {series_id: list(group) for series_id, group in groupby(points, key=lambda point: point.series_id)}
    for series_id, (last, *more) in told.items():
        if not more:  # whether it seldom changes or is not told any more shows in what was before
            told[series_id] = prices.points(
                session,
                [series_id],
                from_s=last.valid_from_s - PRICE_LOOKBACK_S,
                to_s=math.inf,
                known_by_s=now_s,
            )
    return {region_of[series_id]: price_series(group).known(now_s) for series_id, group in told.items()}


def price_series(points: Sequence[PointRecord]) -> PriceSeries:
    """Points of one series, by validity and publication, as a step function: the latest correction holds."""
    latest = {point.valid_from_s: point for point in points}
    in_force = list(latest.values())
    return PriceSeries(
        valid_from_s=tuple(point.valid_from_s for point in in_force),
        values=tuple(point.value for point in in_force),
        # A corrected hour is known later than its successors: published is what all before it is published with.
        known_at_s=tuple(accumulate((point.known_at_s for point in in_force), max)),
    )


def price_now(session: Session, kind: str, now_s: float) -> dict[tuple[str, str, str], float]:
    """(region, GPU type, destination) → the price that holds at `now_s` as known then, for one kind."""
    series = {record.series_id: record for record in prices.series(session, kind=kind)}
    points = prices.points(session, list(series), from_s=now_s, to_s=now_s, known_by_s=now_s)
    return {
        (
            series[point.series_id].region,
            series[point.series_id].gpu_type,
            series[point.series_id].dst,
        ): point.value
        for point in points
    }
