"""Where a job's first stage can read its data, and what it takes to bring them there.

The first stage of the pipeline reads the data sets. Where its region has no copy of one, the set is brought there over
the link of least egress from a region that has one, streamed beside the training: that takes no time and reserves no
bandwidth, and is paid once for each job and region.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Set
from dataclasses import dataclass

from scheduler.cluster import Link, LinkKey
from scheduler.cost import egress_usd
from scheduler.job import DataSet, JobSpec


@dataclass(frozen=True, slots=True)
class Bringing:
    """A data set on its way to where it is read."""

    src: str
    dst: str
    sent_bytes: float
    usd_per_gb: float


def brought_to(spec: JobSpec, links: Mapping[LinkKey, Link], region: str) -> tuple[Bringing, ...] | None:
    """What has to be brought for a chain to begin in a region; None if no link leads there for one of the sets."""
    found = []
    for each in spec.data:
        if region in each.regions or not each.regions:
            continue
        over = _cheapest(each, links, region)
        if over is None:
            return None
        found.append(over)
    return tuple(found)


def beginnings(spec: JobSpec, links: Mapping[LinkKey, Link], regions: Set[str]) -> Mapping[str, float]:
    """Of these regions those in which the job's chain may begin, with what it costs to bring its data there, USD."""
    home = spec.placement.home
    found: dict[str, float] = {}
    for region in sorted(regions if home is None else regions & {home}):
        sets = brought_to(spec, links, region)
        if sets is not None:
            found[region] = math.fsum(egress_usd(each.sent_bytes, each.usd_per_gb) for each in sets)
    return found


def _cheapest(data: DataSet, links: Mapping[LinkKey, Link], region: str) -> Bringing | None:
    leading = [links[src, region] for src in sorted(data.regions) if (src, region) in links]
    over = min(leading, key=lambda link: link.egress_usd_per_gb, default=None)
    return None if over is None else Bringing(over.src, region, data.size_bytes, over.egress_usd_per_gb)
