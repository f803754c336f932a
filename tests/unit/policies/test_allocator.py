"""Stages stand where they cost least; the greedy is as good as the solver wherever only GPU counts bind."""

import random

import pytest

from scheduler.allocator import Offer, Rate, by_price, by_solver, cost_of


def offer(region: str, slots: int, usd: float | None = 1.0, kind: str = "g") -> Offer:
    return Offer((region, kind), slots, Rate(usd is None, 0.0 if usd is None else usd))


def rates(chain):
    return {each.pool: each.rate for each in chain}


def test_one_each_then_by_price():
    chain = [offer("a", 5, 0.3), offer("b", 5, 0.1), offer("c", 5, 0.2)]
    assert by_price(chain, 8) == ((("a", "g"), 1), (("b", "g"), 5), (("c", "g"), 2))
    assert by_price(chain, 3) == ((("a", "g"), 1), (("b", "g"), 1), (("c", "g"), 1))


def test_an_unknown_price_is_never_the_cheapest_not_even_beside_a_dear_one():
    chain = [offer("a", 5, None), offer("b", 5, 99.0)]
    expected = ((("a", "g"), 1), (("b", "g"), 4))
    assert by_price(chain, 5) == by_solver(chain, 5, seed=0) == expected


def test_a_negative_price_is_cheaper_than_nothing():
    chain = [offer("a", 5, 0.0), offer("b", 5, -0.1)]
    assert by_price(chain, 6) == by_solver(chain, 6, seed=0) == ((("a", "g"), 1), (("b", "g"), 5))


def test_what_does_not_fit_is_not_allocated():
    chain = [offer("a", 2), offer("b", 2)]
    for allocate in (by_price, lambda each, stages: by_solver(each, stages, seed=0)):
        assert allocate(chain, 5) is None
        assert allocate(chain, 1) is None


@pytest.mark.parametrize("seed", range(40))
def test_the_greedy_costs_what_the_optimum_costs(seed):
    rng = random.Random(seed)
    regions = rng.sample("abcdefgh", rng.randint(1, 6))
    prices = [rng.choice([None, -0.2, 0.0, 0.1, rng.uniform(0, 1)]) for _ in regions]
    chain = [offer(name, rng.randint(1, 9), usd) for name, usd in zip(regions, prices, strict=True)]
    stages = rng.randint(len(chain), sum(each.slots for each in chain))
    greedy, exact = by_price(chain, stages), by_solver(chain, stages, seed=0)
    assert greedy is not None
    assert exact is not None
    assert cost_of(greedy, rates(chain))[0] == cost_of(exact, rates(chain))[0]
    assert cost_of(greedy, rates(chain))[1] == pytest.approx(cost_of(exact, rates(chain))[1], abs=1e-9)


def test_the_solver_bears_any_legal_price():
    chain = [offer("a", 40, 1e6), offer("b", 40, None), offer("c", 60, 2e6)]
    expected = ((("a", "g"), 40), (("b", "g"), 1), (("c", "g"), 39))
    assert by_price(chain, 80) == by_solver(chain, 80, seed=0) == expected


def test_of_two_types_in_a_region_the_cheaper_takes_what_it_can():
    chain = [offer("a", 3, 0.5, "big"), offer("a", 3, 0.2, "small"), offer("b", 4, 0.4)]
    assert by_solver(chain, 6, seed=0) == ((("a", "small"), 3), (("b", "g"), 3))


def test_a_stage_never_stands_where_its_memory_does_not_suffice():
    # The small type is cheap, but the first two stages do not fit there.
    chain = [offer("a", 9, 0.9, "big"), offer("b", 9, 0.1, "small")]
    shares = by_solver(chain, 6, seed=0, unfit={"small": frozenset({0, 1})})
    assert shares == ((("a", "big"), 2), (("b", "small"), 4))
    assert by_solver(chain, 6, seed=0, unfit={"small": frozenset({5})}) is None
    backwards = by_solver(chain[::-1], 6, seed=0, unfit={"small": frozenset({5})})
    assert backwards == ((("b", "small"), 5), (("a", "big"), 1))


def test_the_same_question_gets_the_same_answer():
    chain = [offer(name, 4, 0.1) for name in "abcd"]
    assert len({by_solver(chain, 9, seed=3) for _ in range(3)}) == 1
