"""A scenario's geography told to a server: its regions, links and prices, by the API.

The prices of the scenario's first day are repeated for yesterday, today and tomorrow: what counts in a
demonstration is that they differ between regions and move with the hour.
"""

from __future__ import annotations

import math
import time
from typing import Any

from scheduler.price import PriceSeries
from scheduler.spec.scenario import Scenario
from service.cli.api import Api, segment

HOUR_S = 3600.0
DAY_S = 86400.0
DAYS = (-1, 0, 1)


def import_world(api: Api, scenario: Scenario) -> None:
    """Regions with their bounds, links, electricity by the hour, egress prices."""
    for region in scenario.cluster.regions.values():
        body: dict[str, Any] = {
            "pue": region.pue,
            "uplink_bps": _bound(region.uplink_bps),
            "downlink_bps": _bound(region.downlink_bps),
        }
        api.request("PUT", f"/v1/regions/{segment(region.name)}", document=body)
    for link in scenario.cluster.links.values():
        body = {"capacity_bps": link.capacity_bps, "latency_s": link.latency_s}
        api.request("PUT", f"/v1/links/{segment(link.src)}/{segment(link.dst)}", document=body)
        egress = {"kind": "egress", "region": link.src, "dst": link.dst, "value": link.egress_usd_per_gb}
        api.request("PUT", "/v1/prices", document=egress | {"source": scenario.name})
    for name, series in scenario.electricity.items():
        points = day_points(series, scenario.start_s, time.time())
        body = {"kind": "electricity", "region": name, "unit": "usd_per_kwh", "points": points}
        api.post("/v1/prices/import", body | {"source": f"{scenario.name}: its first day, repeated"})


def day_points(series: PriceSeries, start_s: float, now_s: float) -> list[dict[str, Any]]:
    """Hourly points around `now_s` that repeat the day of `start_s`, each known from the day before."""
    first_day_s = start_s - start_s % DAY_S
    today_s = now_s - now_s % DAY_S
    points = []
    for day in DAYS:
        for hour in range(24):
            value = series.at(max(first_day_s + hour * HOUR_S, start_s))
            if value is not None:
                valid_s = today_s + day * DAY_S + hour * HOUR_S
                points.append({"valid_from_s": valid_s, "known_at_s": today_s - 2 * DAY_S, "value": value})
    return points


def _bound(bandwidth_bps: float) -> float | None:
    return bandwidth_bps if math.isfinite(bandwidth_bps) else None
