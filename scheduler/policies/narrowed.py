"""Demands that ask for less than the job would take: what policies that give it only that are shown.

Each is made once for a demand and kept as long as it lives: identity tells demands apart, and much is remembered by it.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from weakref import WeakKeyDictionary

from scheduler.options import Candidate, Demand, StageCounts, grown_cap

_MADE: WeakKeyDictionary[Demand, dict[Hashable, Demand]] = WeakKeyDictionary()


def in_one_region(demand: Demand) -> Demand:
    """The same, all in one region."""
    return within_regions(demand, 1)


def within_regions(demand: Demand, most: int) -> Demand:
    """The same, in so many regions at once at most."""
    if demand.max_regions <= most:
        return demand
    made = _MADE.setdefault(demand, {})
    key = ("within", most)
    if key not in made:
        made[key] = replace(demand, max_regions=most)
    return made[key]


def only_in(demand: Demand, regions: frozenset[str]) -> Demand:
    """The same in these regions alone; as it is where it could not stand in any of them."""
    made = _MADE.setdefault(demand, {})
    key = ("only", regions)
    if key not in made:
        candidates = tuple(
            replace(each, pools=pools)
            for each in demand.candidates
            if (pools := tuple(pool for pool in each.pools if pool[0] in regions))
        )
        left = tuple(region for region in demand.regions if region in regions)
        begins = {region: usd for region, usd in demand.begins.items() if region in regions}
        made[key] = (
            replace(
                demand,
                candidates=candidates,
                regions=left,
                begins=begins,
                max_regions=min(demand.max_regions, len(left)),
            )
            if candidates
            else demand
        )
    return made[key]


def with_stages(demand: Demand, stages: int) -> Demand:
    """The same with just so many stages: the nearest number worth having that is no more, or the least of all."""
    made = _MADE.setdefault(demand, {})
    key = ("stages", stages)
    if key not in made:
        made[key] = replace(demand, candidates=tuple(_with_one(each, stages) for each in demand.candidates))
    return made[key]


def grown(demand: Demand, growth: float) -> Demand:
    """The same with K bounded so far from the stages that the job names (0) to K* (1)."""
    made = _MADE.setdefault(demand, {})
    key = ("grown", growth)
    if key not in made:
        named = demand.spec.parallelism.named_stages
        made[key] = replace(
            demand,
            candidates=tuple(
                replace(each, cap=grown_cap(each.stage_counts, each.cap, named, growth))
                for each in demand.candidates
            ),
        )
    return made[key]


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


def _with_one(candidate: Candidate, stages: int) -> Candidate:
    counts = candidate.stage_counts
    at = max(0, min(candidate.cap, counts.index(stages)))
    one = slice(at, at + 1)
    alone = StageCounts(counts.gpu_types, counts.counts[one], counts.pace_s[one], counts.need_bps[one])
    return replace(candidate, stage_counts=alone, cap=0)
