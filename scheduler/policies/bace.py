"""BACE-Pipe (arXiv 2605.25375): pathfinder, then Cost-Min, up to K* stages; and how it chooses among GPU types."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain as flatten

from scheduler.allocator import Offer, Share, by_price, by_solver, cost_of
from scheduler.evaluate import Evaluation
from scheduler.options import Candidate, Demand, fitting_stages
from scheduler.pathfinder import Path, find_path
from scheduler.policies.proposal import (
    Proposal,
    cuts_sentence,
    prices_sentence,
    schedule_sentence,
    sentence,
    stages_sentence,
)
from scheduler.policies.world import World, regions_of


@dataclass(frozen=True, slots=True)
class Division:
    """How the stages of a job are shared out over the regions of its path, and that in words."""

    shares: Callable[[Sequence[Offer], int], tuple[Share, ...] | None]
    """(offers of the path in its order, one a region; stages) -> how many stand in each; None if they do not fit."""
    words: str


COST_MIN = Division(by_price, "beyond one stage each they stand where electricity × PUE × power is cheapest")


def place(demand: Demand, world: World) -> Proposal | None:
    """Path and Cost-Min as published."""
    return place_divided(demand, world, COST_MIN)


def place_divided(demand: Demand, world: World, division: Division) -> Proposal | None:
    """The best placement over the candidates: shortest naive iteration, fewest regions, cheapest; None if none.

    Where a cluster has several GPU types, each alone and all together are candidates (ours: the paper has one).
    """
    micro_batches = demand.spec.training.micro_batches
    best: tuple[tuple[float, int, int, float, int], Candidate, Evaluation] | None = None
    for number, candidate in enumerate(demand.candidates):
        found = _place_candidate(demand, candidate, world, division)
        if found is None:
            continue
        shares, evaluation = found
        pace_s = max(stage.pace_s for stage in evaluation.stage_profiles)
        naive_s = (micro_batches + evaluation.placement.stages - 1) * pace_s
        key = (naive_s, len(evaluation.placement.regions), *cost_of(shares, world.rates), number)
        if best is None or key < best[0]:
            best = (key, candidate, evaluation)
    if best is None:
        return None
    _, candidate, evaluation = best
    return Proposal(evaluation, _why(candidate, evaluation, world, division))


def _place_candidate(
    demand: Demand, candidate: Candidate, world: World, division: Division
) -> tuple[tuple[Share, ...], Evaluation] | None:
    """The path for as many stages as there can be, allocated; with fewer stages where memory forbids that many."""
    offers = world.offers(demand, candidate)
    cap = candidate.cap
    while cap >= 0:
        path = find_path(
            candidate.stage_counts,
            cap,
            demand.max_regions,
            offers,
            world.residual,
            demand.begins,
            world.seed,
        )
        if path is None:
            return None
        shares = _allocate(demand, candidate, path, offers, world, division)
        if shares is not None:
            evaluation = world.place(demand, shares, lambda crossings, need: [need] * len(crossings))
            if evaluation is not None:
                return shares, evaluation
        cap = candidate.stage_counts.index(path.stages) - 1
    return None


def _allocate(
    demand: Demand,
    candidate: Candidate,
    path: Path,
    offers: Sequence[Offer],
    world: World,
    division: Division,
) -> tuple[Share, ...] | None:
    by_region = regions_of(offers)
    if len(candidate.stage_counts.gpu_types) == 1:
        return division.shares([by_region[region][0] for region in path.regions], path.stages)
    # Of two types in one region the one with more memory stands first: early stages hold more in flight.
    types = world.cluster.gpu_types
    unfit = {}
    for name in candidate.stage_counts.gpu_types:
        fitting = fitting_stages(demand.spec, types[name], path.stages)
        unfit[name] = frozenset(stage for stage, fits in enumerate(fitting) if not fits)
    found = []
    for regions in (path.regions, path.regions[::-1]):
        if regions[0] not in demand.begins:
            continue
        chain = flatten.from_iterable(
            sorted(by_region[region], key=lambda each: (-types[each.pool[1]].memory_bytes, each.pool))
            for region in regions
        )
        shares = by_solver(list(chain), path.stages, world.seed, unfit)
        if shares is not None:
            found.append(shares)
    return min(found, key=lambda shares: cost_of(shares, world.rates), default=None)


def _why(candidate: Candidate, evaluation: Evaluation, world: World, division: Division) -> str:
    placement = evaluation.placement
    regions = placement.regions
    if len(regions) == 1:
        where = f"all in {regions[0]}, so that nothing crosses a link"
    else:
        where = f"over {placement.describe()}, the chain whose links keep up with the slowest stage; {division.words}"
    return sentence(
        stages_sentence(candidate, evaluation),
        where,
        cuts_sentence(evaluation),
        schedule_sentence(evaluation),
        prices_sentence(world, regions),
    )
