"""Demands that ask for less than the job would take: what policies that give it only that are shown.

Each is made once for a demand and kept as long as it lives: identity tells demands apart, and much is remembered by it.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from weakref import WeakKeyDictionary

from scheduler.options import Demand

_MADE: WeakKeyDictionary[Demand, dict[Hashable, Demand]] = WeakKeyDictionary()


def in_one_region(demand: Demand) -> Demand:
    """The same, all in one region."""
    made = _MADE.setdefault(demand, {})
    if "one region" not in made:
        made["one region"] = replace(demand, max_regions=min(1, demand.max_regions))
    return made["one region"]


def at_most(demand: Demand, gpu_type: str, stages: int, regions: frozenset[str] | None = None) -> Demand:
    """On GPUs of one type, with at most so many stages (at least the least that it can run with), in these regions."""
    made = _MADE.setdefault(demand, {})
    key = (gpu_type, stages, regions)
    if key not in made:
        made[key] = replace(
            demand,
            candidates=tuple(
                replace(
                    each,
                    cap=max(0, min(each.cap, each.stage_counts.index(stages))),
                    pools=tuple(pool for pool in each.pools if regions is None or pool[0] in regions),
                )
                for each in demand.candidates
                if each.stage_counts.gpu_types == (gpu_type,)
            ),
        )
    return made[key]
