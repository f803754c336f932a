"""horizon's search for a chain: the best there is on few regions, within its budget on many."""

import itertools
import math
import random
from dataclasses import dataclass, replace

import numpy as np
import pytest

from scheduler.pipeline.kernel import compiled
from scheduler.policies.horizon import chain_kernel
from scheduler.policies.horizon.config import HorizonConfig

ENDLESS = 10_000_000


@dataclass(frozen=True)
class Ground:
    """What a search looks at; `need` is that of a cut."""

    slots: np.ndarray
    rate: np.ndarray
    latency: np.ndarray
    egress: np.ndarray
    pair: np.ndarray
    access: np.ndarray
    stages: int
    longest: int
    begin: np.ndarray
    need: float = 10.0
    transfer: float = 0.3
    delay_weight: float = 2.0
    egress_weight: float = 0.7

    @classmethod
    def drawn(cls, dice: random.Random, regions: int, stages: int, *, some_earn: bool = False) -> "Ground":
        """Random links, some of them too thin, some regions full, some too thin at their access to stand inside."""

        def square(low: float, high: float) -> np.ndarray:
            drawn = np.array([[dice.uniform(low, high) for _ in range(regions)] for _ in range(regions)])
            return (drawn + drawn.T) / 2

        latency = square(0.0, 1.0)
        for a, b in itertools.combinations(range(regions), 2):
            if dice.random() < 0.15:
                latency[a, b] = latency[b, a] = math.inf
        pair = square(5.0, 40.0)
        pair[~np.isfinite(latency)] = 0.0
        np.fill_diagonal(pair, 0.0)
        return cls(
            slots=np.array([dice.choice([0, 1, 1, 2, 3, 5]) for _ in range(regions)], dtype=np.int64),
            rate=np.array([dice.uniform(-0.5 if some_earn else 0.0, 1.0) for _ in range(regions)]),
            latency=latency,
            egress=square(0.0, 1.0),
            pair=pair,
            access=np.array([dice.choice([12.0, 25.0, 60.0]) for _ in range(regions)]),
            stages=stages,
            longest=dice.choice([2, 3, regions, regions]),
            begin=np.array([dice.choice([0.0, 0.0, 0.0, 0.3, math.inf]) for _ in range(regions)]),
        )

    def search(self, bound: float = math.inf, budget: int = ENDLESS) -> tuple[float, tuple[int, ...], int]:
        cost, path, left = compiled(chain_kernel.run, chain_kernel.ascending)(*self.arguments(bound, budget))
        return float(cost), tuple(path.tolist()), int(left)

    def arguments(self, bound: float, budget: int) -> tuple[object, ...]:
        return (
            *(self.slots, self.rate, self.latency, self.egress, self.pair, self.access, self.begin),
            *(self.need, self.transfer, self.delay_weight, self.egress_weight),
            *(self.stages, self.longest, budget, bound),
        )

    def joins(self, a: int, b: int) -> bool:
        return bool(self.pair[a, b] >= self.need)

    def holds(self, chain: tuple[int, ...]) -> bool:
        """Whether the chain may be, and has room for all stages."""
        return (
            len(chain) <= min(self.longest, self.stages)
            and math.isfinite(self.begin[chain[0]])
            and all(self.slots[region] > 0 for region in chain)
            and all(self.joins(a, b) for a, b in itertools.pairwise(chain))
            and all(self.access[region] >= 2 * self.need for region in chain[1:-1])
            and sum(self.slots[region] for region in chain) >= self.stages
        )

    def cost(self, chain: tuple[int, ...]) -> float:
        cuts = [
            self.delay_weight * (self.latency[a, b] + self.transfer) + self.egress_weight * self.egress[a, b]
            for a, b in itertools.pairwise(chain)
        ]
        rest = sorted(rate for region in chain for rate in [self.rate[region]] * (self.slots[region] - 1))
        return math.fsum(
            [self.begin[chain[0]], *cuts, *(self.rate[list(chain)]), *rest[: self.stages - len(chain)]]
        )

    def every_chain(self) -> list[tuple[int, ...]]:
        """All that hold the stages, grown region by region so that only chains of links are looked at."""
        found, growing = [], [(region,) for region in range(self.slots.size)]
        while growing:
            chain = growing.pop()
            if self.holds(chain):
                found.append(chain)
            if len(chain) < self.longest:
                growing += [
                    (*chain, b) for b in range(self.slots.size) if b not in chain and self.joins(chain[-1], b)
                ]
        return found


@pytest.mark.parametrize("regions", [1, 2, 3, 4, 5, 6])
def test_the_chain_found_is_the_best_of_all_chains(regions: int) -> None:
    dice = random.Random(regions)
    found = 0
    for _ in range(60):
        ground = Ground.drawn(dice, regions, dice.randint(1, 9), some_earn=dice.random() < 0.3)
        best = min(map(ground.cost, ground.every_chain()), default=math.inf)
        cost, chain, _ = ground.search()
        assert cost == pytest.approx(best, rel=1e-12)
        assert bool(chain) == math.isfinite(best)
        if chain:
            found += 1
            assert ground.holds(chain)
            assert ground.cost(chain) == pytest.approx(cost, rel=1e-12)
    assert found > 10


@pytest.mark.parametrize("regions", [7, 8])
def test_it_is_the_best_of_all_chains_over_seven_and_eight_regions(regions: int) -> None:
    dice = random.Random(regions)
    for _ in range(6):
        ground = Ground.drawn(dice, regions, dice.randint(6, 14))
        best = min(map(ground.cost, ground.every_chain()), default=math.inf)
        assert ground.search()[0] == pytest.approx(best, rel=1e-12)


def test_eight_regions_are_searched_whole_within_the_nodes_that_horizon_allows() -> None:
    dice = random.Random(8)
    for _ in range(100):
        ground = Ground.drawn(dice, 8, dice.randint(2, 14))
        _, _, left = ground.search(budget=HorizonConfig().search_nodes)
        assert left > 0


def test_the_compiled_search_is_the_search() -> None:
    dice = random.Random(5)
    for _ in range(30):
        ground = Ground.drawn(dice, 5, dice.randint(2, 9))
        cost, path, left = chain_kernel.run(*ground.arguments(math.inf, 50))  # type: ignore[arg-type]
        assert ground.search(budget=50) == (cost, tuple(path.tolist()), left)


def test_nothing_is_found_that_costs_the_bound_or_more() -> None:
    dice = random.Random(3)
    for _ in range(60):
        ground = Ground.drawn(dice, 5, dice.randint(2, 6))
        cost, chain, _ = ground.search()
        if chain:
            assert ground.search(bound=cost)[1] == ()
            assert ground.search(bound=cost + 1e-9)[1] == chain


def test_fifty_regions_are_searched_within_the_budget_and_answered() -> None:
    dice = random.Random(50)
    for _ in range(20):
        ground = Ground.drawn(dice, 50, dice.randint(20, 60))
        ground = replace(ground, longest=50, begin=np.zeros(50), access=np.full(50, 60.0))
        cost, chain, left = ground.search(budget=4000)
        assert 0 <= left < 4000
        assert ground.holds(chain)
        assert ground.cost(chain) == pytest.approx(cost)


def test_more_nodes_never_find_a_worse_chain() -> None:
    dice = random.Random(51)
    ground = Ground.drawn(dice, 30, 40)
    ground = replace(ground, longest=30, begin=np.zeros(30))
    costs = [ground.search(budget=budget)[0] for budget in (100, 1_000, 10_000, 100_000)]
    assert costs == sorted(costs, reverse=True)
