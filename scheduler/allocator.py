"""The Cost-Min allocator of BACE-Pipe: how many stages stand in each region of a chain.

One stage to every region of the chain, the rest where electricity × PUE × power is cheapest. That is optimal while
only GPU counts bind: the cost is a sum over stages, each region wants one and takes up to its free slots, so
exchanging a stage against a cheaper free slot never makes it dearer. Where a region has pools of several GPU
types, or the memory of unlike types decides which stages they can hold, OR-Tools decides (CP-SAT, one worker, fixed
seed, a limit counted in deterministic work and not in seconds).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Final

from scheduler.cluster import PoolKey

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

SOLVER_LIMIT: Final = 2.0
"""Deterministic time of one solve (about as many seconds): the same amount of work on every machine."""
_RATE_PARTS: Final = 10**12
"""Prices reach the solver as whole numbers of this part of the largest of them: sums over stages fit in 64 bits."""


@dataclass(frozen=True, slots=True)
class Rate:
    """What holding one busy GPU costs, USD per hour: price × PUE × power. An unknown price sorts after every known."""

    unknown: bool
    usd_per_hour: float

    @property
    def key(self) -> tuple[bool, float]:
        return (self.unknown, self.usd_per_hour)


@dataclass(frozen=True, slots=True)
class Offer:
    """What a pool could give to a job: free slots of a whole stage each, and what one stage costs there."""

    pool: PoolKey
    slots: int
    rate: Rate

    @property
    def region(self) -> str:
        return self.pool[0]


Share = tuple[PoolKey, int]
"""(pool, stages that stand there); an allocation is a sequence of them in pipeline order."""


def cost_of(shares: Sequence[Share], rates: Mapping[PoolKey, Rate]) -> tuple[int, float]:
    """(stages at an unknown price, USD per hour of the others for one GPU a stage): compares allocations."""
    unknown = sum(stages for pool, stages in shares if rates[pool].unknown)
    known = math.fsum(rates[pool].usd_per_hour * stages for pool, stages in shares if not rates[pool].unknown)
    return (unknown, known)


def by_price(chain: Sequence[Offer], stages: int) -> tuple[Share, ...] | None:
    """One stage to every offer of the chain, the rest by ascending rate; ties by the order of the pools' names.

    `chain` has one offer a region, in pipeline order. None if the stages do not fit or are fewer than regions.
    """
    given = {offer.pool: 1 for offer in chain}
    left = stages - len(chain)
    if left < 0 or any(offer.slots < 1 for offer in chain):
        return None
    for offer in sorted(chain, key=lambda each: (each.rate.key, each.pool)):
        more = min(left, offer.slots - 1)
        given[offer.pool] += more
        left -= more
    return None if left else tuple(given.items())


def by_solver(
    chain: Sequence[Offer],
    stages: int,
    seed: int,
    unfit: Mapping[str, frozenset[int]] | None = None,
) -> tuple[Share, ...] | None:
    """The cheapest allocation over a chain whose regions may have several offers each, one after the other.

    Every region gets at least one stage, an offer may get none. `unfit` tells, by GPU type, which stages do not fit
    in its memory: none of them may stand there, so the order of the offers matters. None if nothing satisfies
    this. Which of several equally cheap answers is given depends on the arguments alone.
    """
    from ortools.sat.python import cp_model  # a second of import, for the few plans that need it

    model = cp_model.CpModel()
    unfit = unfit or {}
    counts: list[cp_model.IntVar] = []
    begin: cp_model.LinearExpr | int = 0
    for offer in chain:
        count = model.new_int_var(0, min(offer.slots, stages), "")
        end = begin + count
        for stage in sorted(unfit.get(offer.pool[1], frozenset())):
            if stage < stages:
                before = model.new_bool_var("")  # the offer ends before this stage, or begins after it
                model.add(end <= stage).only_enforce_if(before)
                model.add(begin >= stage + 1).only_enforce_if(~before)
        counts.append(count)
        begin = end
    model.add(begin == stages)
    for _, group in groupby(zip(chain, counts, strict=True), key=lambda each: each[0].region):
        model.add(sum(count for _, count in group) >= 1)
    weights = _whole_weights([offer.rate for offer in chain], stages)
    model.minimize(sum(weight * count for weight, count in zip(weights, counts, strict=True)))
    solver = solver_for(seed)
    if solver.solve(model) not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return None
    given = [(offer.pool, solver.value(count)) for offer, count in zip(chain, counts, strict=True)]
    return tuple((pool, count) for pool, count in given if count)


def solver_for(seed: int) -> cp_model.CpSolver:
    """A solver whose answer is a function of the model and the seed."""
    from ortools.sat.python import cp_model  # a second of import, for the few plans that need it

    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = seed
    solver.parameters.max_deterministic_time = SOLVER_LIMIT
    return solver


def _whole_weights(rates: Sequence[Rate], stages: int) -> list[int]:
    """The rates as whole numbers for the solver; one stage at an unknown price outweighs all known prices."""
    largest = max((abs(rate.usd_per_hour) for rate in rates if not rate.unknown), default=0.0) or 1.0
    whole = [0 if rate.unknown else round(rate.usd_per_hour / largest * _RATE_PARTS) for rate in rates]
    beyond = 2 * stages * _RATE_PARTS
    return [beyond if rate.unknown else weight for rate, weight in zip(rates, whole, strict=True)]
