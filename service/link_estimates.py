"""What planning goes by of a link: what the operator said, or what was measured, and why.

Measured figures are the medians of the last `MEDIAN_OF` measurements. A new one is gone by only where it differs from
the one in use by more than a part (`BACE_LINK_CHANGE`): noise makes no plan stale. One that has grown too old is let
go, and what the operator said holds again. A capacity that he calls a limit is never exceeded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

from service.db.records import LinkEstimateRecord, LinkRecord
from service.settings import LinkMeasuring, Settings

MEDIAN_OF = 3
LEAST_LATENCY_CHANGE_S = 0.5e-3
"""A latency that differs by less is the same, however short it is."""

CONFIGURED, MEASURED, LIMIT = "configured", "measured", "limit"


@dataclass(frozen=True, slots=True)
class Figures:
    """Of a link, as planning takes them; where each comes from: `configured`, `measured` or `limit` (more was measured
    than the operator allows)."""

    capacity_bps: float
    capacity_from: str
    latency_s: float
    latency_from: str


@dataclass(frozen=True, slots=True)
class Sample:
    """One measurement."""

    value: float
    at_s: float


def measuring_of(link: LinkRecord, settings: Settings) -> LinkMeasuring:
    """What may be measured of a link: what was said of it, else what holds for all. Off for all is off for each."""
    if settings.link_measuring is LinkMeasuring.OFF or link.measuring is None:
        return settings.link_measuring
    return LinkMeasuring(link.measuring)


def figures_of(link: LinkRecord, estimate: LinkEstimateRecord | None) -> Figures:
    """What planning goes by now. A link that was taken out of use stays out of use."""
    capacity_bps, capacity_from = link.capacity_bps, CONFIGURED
    latency_s, latency_from = link.latency_s, CONFIGURED
    if estimate is not None and estimate.used_latency_s is not None:
        latency_s, latency_from = estimate.used_latency_s, MEASURED
    if estimate is not None and estimate.used_bandwidth_bps is not None and link.capacity_bps > 0:
        capacity_bps, capacity_from = estimate.used_bandwidth_bps, MEASURED
        if link.capacity_is_limit and capacity_bps >= link.capacity_bps:
            capacity_bps, capacity_from = link.capacity_bps, LIMIT
    return Figures(capacity_bps, capacity_from, latency_s, latency_from)


def estimate_from(
    link: LinkRecord,
    before: LinkEstimateRecord | None,
    latencies: Sequence[Sample],
    bandwidths: Sequence[Sample],
    settings: Settings,
    now_s: float,
) -> LinkEstimateRecord:
    """The estimate as it is now, from the newest measurements of before (newest first)."""
    before = before or LinkEstimateRecord(link.src, link.dst)
    measuring, oldest_s = measuring_of(link, settings), now_s - settings.link_max_age_s
    measured = before
    if fresh := [sample for sample in latencies if sample.at_s > oldest_s][:MEDIAN_OF]:
        measured = replace(measured, latency_s=_middle(fresh), latency_at_s=fresh[0].at_s)
    if fresh := [sample for sample in bandwidths if sample.at_s > oldest_s][:MEDIAN_OF]:
        measured = replace(measured, bandwidth_bps=_middle(fresh), bandwidth_at_s=fresh[0].at_s)
    now = replace(measured, used_latency_s=None, used_bandwidth_bps=None)
    if measuring is not LinkMeasuring.OFF and _is_fresh(measured.latency_at_s, oldest_s):
        now = replace(now, used_latency_s=_kept_latency(link, before, measured, settings.link_change))
    if measuring is LinkMeasuring.BANDWIDTH and _is_fresh(measured.bandwidth_at_s, oldest_s):
        now = replace(now, used_bandwidth_bps=_kept_bandwidth(link, before, measured, settings.link_change))
    return now


def is_outdated(link: LinkRecord, estimate: LinkEstimateRecord, settings: Settings, now_s: float) -> bool:
    """Whether planning goes by something that is too old by now, or is not to be measured any more."""
    measuring, oldest_s = measuring_of(link, settings), now_s - settings.link_max_age_s
    latency = measuring is not LinkMeasuring.OFF and _is_fresh(estimate.latency_at_s, oldest_s)
    bandwidth = measuring is LinkMeasuring.BANDWIDTH and _is_fresh(estimate.bandwidth_at_s, oldest_s)
    return (estimate.used_latency_s is not None and not latency) or (
        estimate.used_bandwidth_bps is not None and not bandwidth
    )


def why(
    link: LinkRecord, estimate: LinkEstimateRecord | None, settings: Settings, now_s: float
) -> tuple[str, str]:
    """Why capacity and latency are what they are."""
    estimate, figures = estimate or LinkEstimateRecord(link.src, link.dst), figures_of(link, estimate)
    measuring = measuring_of(link, settings)
    age_s, change = settings.link_max_age_s, settings.link_change
    capacity = {MEASURED: "measured", LIMIT: "more was measured than the limit that was set"}.get(
        figures.capacity_from
    ) or _why_configured(measuring is LinkMeasuring.BANDWIDTH, estimate.bandwidth_at_s, now_s - age_s, change)
    if link.capacity_bps <= 0:
        capacity = "taken out of use"
    latency = (
        "measured"
        if figures.latency_from == MEASURED
        else _why_configured(measuring is not LinkMeasuring.OFF, estimate.latency_at_s, now_s - age_s, change)
    )
    return capacity, latency


def _why_configured(is_measured: bool, at_s: float | None, oldest_s: float, change: float) -> str:
    if not is_measured:
        return "as set: it is not measured"
    if at_s is None:
        return "as set: not measured yet"
    if not _is_fresh(at_s, oldest_s):
        return "as set: the last measurement is too old"
    return f"as set: what was measured is within {change:.0%} of it"


def _kept_latency(
    link: LinkRecord, before: LinkEstimateRecord, measured: LinkEstimateRecord, change: float
) -> float | None:
    in_use_s, found_s = figures_of(link, before).latency_s, measured.latency_s
    if found_s is None:
        return None
    differs = abs(found_s - in_use_s) > max(change * in_use_s, LEAST_LATENCY_CHANGE_S)
    return found_s if differs else before.used_latency_s


def _kept_bandwidth(
    link: LinkRecord, before: LinkEstimateRecord, measured: LinkEstimateRecord, change: float
) -> float | None:
    found = measured.bandwidth_bps
    if found is None:
        return None
    in_use_bps = figures_of(link, before).capacity_bps
    would_be_bps = figures_of(link, replace(before, used_bandwidth_bps=found)).capacity_bps
    return found if abs(would_be_bps - in_use_bps) > change * in_use_bps else before.used_bandwidth_bps


def _middle(samples: Sequence[Sample]) -> float:
    return median(sample.value for sample in samples)


def _is_fresh(at_s: float | None, oldest_s: float) -> bool:
    return at_s is not None and at_s > oldest_s
