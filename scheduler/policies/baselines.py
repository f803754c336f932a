"""The baselines of the paper: one region (LCF, LDF, FIFO), and several without care for bandwidth (CR-LCF, CR-LDF).

All cap a job at K* as BACE-Pipe does. Of a region with several GPU types they use one. A cut of the CR policies
is granted what it needs or what there is (they do not ask whether that keeps up), but not less than a tenth of
what it needs: `LEAST_PART` is ours, and spares them chains that would never end. Two cuts of one region that cannot
both have what they need get half of its up- and downlink each: the slower of the two sets the pace.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Final

from scheduler.allocator import Offer, Share
from scheduler.evaluate import Evaluation
from scheduler.network import Bandwidth, Residual
from scheduler.options import Candidate, Demand
from scheduler.pathfinder import find_path
from scheduler.policies.proposal import (
    Proposal,
    cuts_sentence,
    prices_sentence,
    schedule_sentence,
    sentence,
    stages_sentence,
)
from scheduler.policies.world import Grants, World

LEAST_PART: Final = 10
"""One part in so many of what a cut needs is the least that the CR policies accept."""

Taste = Callable[[Offer], tuple[object, ...]]
"""Sort key of offers: the first is liked best."""


def cheapest(offer: Offer) -> tuple[object, ...]:
    """Price × PUE × power, then more free slots, then the name."""
    return (*offer.rate.key, -offer.slots, offer.pool)


def most_free(world: World) -> Taste:
    """Free GPUs, whether or not they make whole stages; then the price, then the name."""
    free_gpus = world.residual.free_gpus
    return lambda offer: (-free_gpus(offer.pool), *offer.rate.key, offer.pool)


def place_lcf(demand: Demand, world: World) -> Proposal | None:
    """Least cost first: the cheapest region that holds the job."""
    return next(places_alone(demand, world, cheapest, "the cheapest region that has room for it"), None)


def place_ldf(demand: Demand, world: World) -> Proposal | None:
    """The region with the most free GPUs."""
    return next(places_by_room(demand, world), None)


def places_by_room(demand: Demand, world: World) -> Iterator[Proposal]:
    """The regions that hold the job, the one with the most free GPUs first."""
    return places_alone(demand, world, most_free(world), "the region with the most free GPUs")


def places_alone(demand: Demand, world: World, taste: Taste, praise: str) -> Iterator[Proposal]:
    """The best that each region offers to the job in order of taste. `praise` tells why the first is first."""
    choices = [
        (taste(offer), number, offer)
        for number, candidate in enumerate(single_types(demand))
        for offer in world.offers(demand, candidate)
        if offer.slots >= candidate.stage_counts.floor and offer.region in demand.begins
    ]
    for _, number, offer in sorted(choices):
        candidate = demand.candidates[number]
        for index in range(min(candidate.cap, candidate.stage_counts.index(offer.slots)), -1, -1):
            shares = ((offer.pool, candidate.stage_counts.counts[index]),)
            evaluation = world.place(demand, shares, lambda _crossings, _need: None)
            if evaluation is not None:
                why = sentence(
                    stages_sentence(candidate, evaluation),
                    f"in {offer.region}, {praise}",
                    schedule_sentence(evaluation),
                    prices_sentence(world, [offer.region]),
                )
                yield Proposal(evaluation, why)
                break


def single_types(demand: Demand) -> Iterator[Candidate]:
    """The candidates of one GPU type each."""
    return (each for each in demand.candidates if len(each.stage_counts.gpu_types) == 1)


def place_cr_lcf(demand: Demand, world: World) -> Proposal | None:
    """Several regions by ascending price."""
    return place_across(demand, world, _by_price, fill, "regions by ascending price")


def place_cr_ldf(demand: Demand, world: World) -> Proposal | None:
    """Several regions by capacity, and of equals the one with the widest link."""
    return place_across(demand, world, _by_capacity, fill, "regions by free GPUs and bandwidth")


Following = Callable[[Sequence[Offer], int, Mapping[Offer, Bandwidth]], list[Offer]]
"""(offers, slots still wanted, bandwidth from the chain's end to each) -> the offers in order of taste."""
Fill = Callable[[Sequence[Offer], int], tuple[Share, ...] | None]
"""(offers of a chain in its order, stages) -> how many stand in each; None if it does not hold them."""


def _by_price(offers: Sequence[Offer], _wanted: int, _width: Mapping[Offer, Bandwidth]) -> list[Offer]:
    return sorted(offers, key=cheapest)


def _by_capacity(offers: Sequence[Offer], wanted: int, width: Mapping[Offer, Bandwidth]) -> list[Offer]:
    return sorted(
        offers, key=lambda each: (-min(wanted, each.slots), -width[each], *each.rate.key, each.pool)
    )


def by_room(offers: Sequence[Offer], _wanted: int, _width: Mapping[Offer, Bandwidth]) -> list[Offer]:
    """By free slots, whatever links there are."""
    return sorted(offers, key=lambda each: (-each.slots, each.pool))


def place_across(
    demand: Demand, world: World, following: Following, filled: Fill, praise: str
) -> Proposal | None:
    """The first chain in order of taste that holds the job; a region that cannot be joined is left out.

    Regions are joined for K* stages; where no such chain holds the job, for as few as it can run with.
    """
    for candidate in single_types(demand):
        offers = world.offers(demand, candidate)
        if not holds_least(demand, candidate, offers):
            continue
        needs = candidate.stage_counts.need_bps
        for need in dict.fromkeys((needs[candidate.cap], needs[0])):
            starts = [offer for offer in offers if offer.region in demand.begins]
            for start in following(starts, candidate.most, dict.fromkeys(starts, math.inf)):
                chain = chain_from(demand, candidate, world, offers, start, following, need)
                evaluation = _placed(demand, candidate, world, chain, filled)
                if evaluation is not None:
                    why = sentence(
                        stages_sentence(candidate, evaluation),
                        f"over {evaluation.placement.describe()}: {praise}",
                        cuts_sentence(evaluation),
                        schedule_sentence(evaluation),
                        prices_sentence(world, evaluation.placement.regions),
                    )
                    return Proposal(evaluation, why)
    return None


def holds_least(demand: Demand, candidate: Candidate, offers: Sequence[Offer]) -> bool:
    """Whether as many regions as the job may use have room for the least stages, whatever joins them."""
    widest = sorted((offer.slots for offer in offers), reverse=True)[: demand.max_regions]
    return sum(widest) >= candidate.stage_counts.floor


def _placed(
    demand: Demand, candidate: Candidate, world: World, chain: Sequence[Offer], filled: Fill
) -> Evaluation | None:
    """As many stages on the chain as its slots and the least part of every cut allow; None below the least."""
    room = candidate.stage_counts.index(sum(offer.slots for offer in chain))
    for index in range(min(candidate.cap, room), -1, -1):
        shares = filled(chain, candidate.stage_counts.counts[index])
        if shares is not None:
            evaluation = world.place(demand, shares, as_available(world))
            if evaluation is not None:
                return evaluation
    return None


def chain_from(
    demand: Demand,
    candidate: Candidate,
    world: World,
    offers: Sequence[Offer],
    start: Offer,
    following: Following,
    need: int,
) -> list[Offer]:
    """Regions one after the other, until there is room for K* stages; each over a cut that needs so much."""
    chain = [start]
    while len(chain) < demand.max_regions:
        wanted = candidate.most - sum(offer.slots for offer in chain)
        if wanted <= 0:
            break
        names = [offer.region for offer in chain]
        widths = {
            offer: granted[-1]
            for offer in offers
            if offer.region not in names
            and (granted := _grant(world.residual, [*pairwise(names), (names[-1], offer.region)], need))
        }
        if not widths:
            break
        chain.append(following(list(widths), wanted, widths)[0])
    return chain


def fill(chain: Sequence[Offer], stages: int) -> tuple[Share, ...] | None:
    """The first region as full as it gets, then the next."""
    shares: list[Share] = []
    for offer in chain:
        here = min(offer.slots, stages)
        if here:
            shares.append((offer.pool, here))
        stages -= here
    return None if stages else tuple(shares)


def as_available(world: World) -> Grants:
    """Every cut gets what it needs, or what there is."""
    return lambda crossings, need: _grant(world.residual, crossings, need)


def _grant(residual: Residual, crossings: Sequence[tuple[str, str]], need: int) -> list[int] | None:
    """For each cut what it needs, or what its link and its share of both ends have; None below the least part."""
    cuts = Counter(region for crossing in crossings for region in crossing)
    granted = []
    for a, b in crossings:
        here = int(
            min(
                need,
                residual.own_pair_bps(a, b),
                residual.access_bps(a) / cuts[a],
                residual.access_bps(b) / cuts[b],
            )
        )
        if here < least_grant(need):
            return None
        granted.append(here)
    return granted


def least_grant(need_bps: int) -> int:
    """The least that the CR policies accept for a cut that needs so much, in whole bits per second."""
    return max(1, -(-need_bps // LEAST_PART))


def least_need(candidate: Candidate) -> int:
    """The least that a cut must get for the CR policies to start the job at all."""
    return least_grant(candidate.stage_counts.need_bps[0])


def could_ever_cross(demand: Demand, world: World) -> bool:
    """Whether some chain would hold the job in whatever order prices may put the regions, on what is free there."""
    for candidate in single_types(demand):
        counts = candidate.stage_counts
        eased = replace(counts, need_bps=tuple(map(least_grant, counts.need_bps)))
        offers = world.offers(demand, candidate)
        if find_path(
            eased, candidate.cap, demand.max_regions, offers, world.residual, demand.begins, world.seed
        ):
            return True
    return False
