"""BACE-Pipe without one of its three parts: what each of them is worth (arXiv 2605.25375 shows such an ablation).

What stands in place of a part is not published in detail. Ours:
- no priority: the user's priority, then arrival;
- no pathfinder: regions are joined by free GPUs alone, as CR-LDF does, and a cut gets what it needs or what there is;
- no Cost-Min: prices are not looked at, neither among equally good paths nor along one: the stages of a job are spread
  over its path as evenly as free slots allow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from scheduler.allocator import Offer, Rate, Share, by_price
from scheduler.options import Demand
from scheduler.policies import bace
from scheduler.policies.baselines import by_room, place_across
from scheduler.policies.proposal import Proposal
from scheduler.policies.world import World

_FREE: Final = Rate(unknown=False, usd_per_hour=0.0)


def place_without_path(demand: Demand, world: World) -> Proposal | None:
    """Regions by free GPUs, whatever their links hold; over these, Cost-Min."""
    return place_across(demand, world, by_room, _cheapest_over_first, "regions by free GPUs alone")


def place_without_cost(demand: Demand, world: World) -> Proposal | None:
    """The pathfinder's chain, and stages spread evenly over it."""
    return bace.place_divided(demand, without_prices(world), _EVEN)


def without_prices(world: World) -> World:
    """The same world where every GPU costs the same to whoever compares."""
    return replace(world, rates=dict.fromkeys(world.rates, _FREE))


def evenly(chain: Sequence[Offer], stages: int) -> tuple[Share, ...] | None:
    """One stage to every offer, each further one to that with the fewest; ties by the order of the pools' names."""
    given = {offer.pool: 1 for offer in chain}
    slots = {offer.pool: offer.slots for offer in chain}
    if not len(chain) <= stages <= sum(slots.values()):
        return None
    for _ in range(stages - len(chain)):
        given[min((count, pool) for pool, count in given.items() if count < slots[pool])[1]] += 1
    return tuple(given.items())


_EVEN: Final = bace.Division(evenly, "they are spread evenly over it")


def _cheapest_over_first(chain: Sequence[Offer], stages: int) -> tuple[Share, ...] | None:
    """Cost-Min over as many regions from the chain's beginning as hold the stages."""
    room = 0
    for length, offer in enumerate(chain, start=1):
        room += offer.slots
        if room >= stages:
            return by_price(chain[:length], stages)
    return None
