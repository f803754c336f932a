"""The capacity bound is below every schedule, and meets the best one where jobs are fluid."""

from __future__ import annotations

from itertools import permutations, product

import numpy as np
import pytest

from scheduler.bench.alone import Option
from scheduler.bench.capacity_bound import Demand, capacity_bound, drain_s, worthwhile
from scheduler.errors import InvalidValueError

GPUS = 4


def _options(work_s: float) -> tuple[Option, ...]:
    """On 1, 2 and 4 GPUs: each doubling takes a fifth more work."""
    return tuple(Option(gpus, work_s * waste / gpus, 1.0) for gpus, waste in ((1, 1.0), (2, 1.2), (4, 1.44)))


def _demands(works_s: list[float], releases_s: list[float]) -> tuple[Demand, ...]:
    options = [_options(work_s) for work_s in works_s]
    reach_s = 3 * drain_s(options, GPUS)
    return tuple(
        Demand(release_s, choice, reach_s) for release_s, choice in zip(releases_s, options, strict=True)
    )


def _best_moldable_s(demands: tuple[Demand, ...]) -> float:
    """The least mean time of jobs that keep one option: every order and every option, each as early as it fits."""
    best = float("inf")
    for order in permutations(range(len(demands))):
        for chosen in product(*(demand.options for demand in demands)):
            held: list[tuple[float, float, int]] = []
            total = 0.0
            for index in order:
                demand, option = demands[index], chosen[index]
                moments = sorted({demand.release_s, *(end for _, end, _ in held if end > demand.release_s)})
                start_s = next(at for at in moments if _fits(held, at, at + option.duration_s, option.gpus))
                held.append((start_s, start_s + option.duration_s, option.gpus))
                total += start_s + option.duration_s - demand.release_s
            best = min(best, total / len(demands))
    return best


def _fits(held: list[tuple[float, float, int]], start_s: float, end_s: float, gpus: int) -> bool:
    moments = [start_s, *(begin for begin, _, _ in held if start_s < begin < end_s)]
    return all(gpus + sum(g for begin, end, g in held if begin <= at < end) <= GPUS for at in moments)


@pytest.mark.parametrize("seed", range(12))
def test_no_schedule_of_moldable_jobs_is_better(seed: int) -> None:
    draw = np.random.default_rng(seed)
    works_s = draw.uniform(100, 1000, 4).tolist()
    releases_s = [0.0] * 4 if seed % 2 else draw.uniform(0, 600, 4).tolist()
    demands = _demands(works_s, releases_s)
    bound = capacity_bound(demands, GPUS, 5.0)
    best_s = _best_moldable_s(demands)
    assert bound.strict_s <= bound.moldable_s <= best_s * (1 + 1e-9)
    assert bound.moldable_s >= 0.75 * best_s


def test_one_job_alone_is_bound_by_its_fastest_option() -> None:
    (demand,) = _demands([1000.0], [250.0])
    bound = capacity_bound((demand,), GPUS, 1.0)
    assert bound.moldable_s == pytest.approx(360.0, abs=1.0)
    assert bound.strict_s == pytest.approx(bound.moldable_s)
    assert bound.moldable_s <= 360.0


def test_two_jobs_for_one_place_must_come_one_after_the_other() -> None:
    """Each needs all GPUs for 100 s: at best they end after 100 and 200 s."""
    only = (Option(GPUS, 100.0, 1.0),)
    demands = (Demand(0.0, only, 400.0), Demand(0.0, only, 400.0))
    bound = capacity_bound(demands, GPUS, 1.0)
    assert bound.moldable_s == pytest.approx(150.0, abs=1.0)
    assert bound.moldable_s <= 150.0


def test_shorter_intervals_bring_the_bound_closer_and_a_short_reach_lowers_it() -> None:
    demands = _demands([500.0, 700.0, 900.0, 300.0], [0.0, 50.0, 60.0, 70.0])
    coarse, fine = capacity_bound(demands, GPUS, 80.0), capacity_bound(demands, GPUS, 10.0)
    assert coarse.strict_s <= fine.strict_s
    assert coarse.moldable_s <= fine.moldable_s
    near = tuple(Demand(each.release_s, each.options, 100.0) for each in demands)
    assert capacity_bound(near, GPUS, 10.0).strict_s <= fine.strict_s


def test_worthwhile_options_are_those_that_no_mixture_beats() -> None:
    fast, middle, slow = Option(4, 10.0, 1.0), Option(2, 14.0, 1.0), Option(1, 20.0, 1.0)
    by_one, by_a_mixture = Option(4, 20.0, 1.0), Option(3, 12.0, 1.0)
    assert worthwhile((slow, by_one, fast, middle, by_a_mixture)) == (fast, middle, slow)


def test_no_jobs_have_no_bound() -> None:
    with pytest.raises(InvalidValueError):
        capacity_bound((), GPUS, 1.0)
