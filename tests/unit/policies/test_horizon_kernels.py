"""The loops over numbers that horizon's search is made of: what they answer, and that compiling changes none of it."""

import math
import random

import numpy as np
import pytest

from scheduler.pipeline.kernel import compiled
from scheduler.policies.horizon import chain_kernel, price_kernel, region_kernel, rung_kernel
from scheduler.policies.horizon.ground import KNOTS_S

HOUR = 3600.0
NOTHING = np.zeros((0, 0), dtype=np.bool_)


def square(dice: random.Random, size: int, low: float, high: float) -> np.ndarray:
    return np.array([[dice.uniform(low, high) for _ in range(size)] for _ in range(size)])


def prices(dice: random.Random) -> tuple[np.ndarray, np.ndarray]:
    """Step functions of three regions, some of them below zero, and their integrals up to each knot."""
    steps = np.array([[dice.uniform(-0.1, 0.4) for _ in KNOTS_S] for _ in range(3)])
    return steps, np.hstack((np.zeros((3, 1)), np.cumsum(steps[:, :-1] * np.diff(KNOTS_S), axis=1)))


def integral(steps: np.ndarray, start_s: float, end_s: float, least: float) -> float:
    """Piece by piece."""
    ends = [*KNOTS_S[1:].tolist(), math.inf]
    return math.fsum(
        max(price, least) * max(0.0, min(end_s, until_s) - max(start_s, from_s))
        for price, from_s, until_s in zip(steps, KNOTS_S, ends, strict=True)
    )


@pytest.mark.parametrize("before_s", [0.0, 0.2 * HOUR, 7 * HOUR, 400 * HOUR])
def test_a_price_is_integrated_piece_by_piece_and_counts_down_to_its_least(before_s: float) -> None:
    dice = random.Random(1)
    steps, sums = prices(dice)
    durations_s = np.array([0.0, 60.0, HOUR, 5.5 * HOUR, 300 * HOUR])
    least = np.array([-np.inf, 0.0, -0.05, 0.1, -np.inf])
    lowest = float(steps.min())
    for loop in (price_kernel.run, compiled(price_kernel.run)):
        found = loop(KNOTS_S, steps, sums, lowest, before_s, durations_s, least)
        for region in range(3):
            for each, (duration_s, floor) in enumerate(zip(durations_s, least, strict=True)):
                due = integral(steps[region], before_s, before_s + duration_s, floor)
                assert found[region, each] == pytest.approx(due, rel=1e-9, abs=1e-9)


def test_the_fastest_rung_and_what_it_costs_more_than_the_cheapest() -> None:
    dice, dearer = random.Random(5), 0
    for _ in range(50):
        gpus = np.array([2, 4, 8, 16])
        iteration_s = np.array([dice.uniform(1, 2) * 16 / count**0.9 for count in gpus])
        draw_kw = np.array([dice.uniform(0.2, 0.4) * count for count in gpus])
        steps, gpu_s = dice.uniform(10, 1000), dice.uniform(0.0, 0.3)
        time_s = steps * iteration_s * (1 + gpu_s * gpus)
        usd = (draw_kw * 0.2 * 0.75 + gpus * 1.5) * steps * iteration_s / HOUR
        best = int(np.argmin(time_s))
        for loop in (rung_kernel.fastest, compiled(rung_kernel.fastest)):
            rung, run_s, score_s = loop(iteration_s, gpus, steps, gpu_s)
            assert (rung, run_s, score_s) == (best, steps * iteration_s[best], time_s[best])
        for spread in (rung_kernel.more_than_least_usd, compiled(rung_kernel.more_than_least_usd)):
            found = spread(iteration_s, gpus, draw_kw, 0.75, 1.5, steps, 0.2, best)
            assert found == pytest.approx(usd[best] - usd.min())
        dearer += usd[best] > usd.min()
    assert dearer > 10


def region_arguments(dice: random.Random) -> tuple[object, ...]:
    """Five regions and four rungs; of the state of the job two parts lie in two regions."""
    stages = np.array([2, 3, 5, 8])
    return (
        np.array([dice.choice([0, 1, 2, 4, 9]) for _ in range(5)]),
        stages,
        np.sort(np.array([dice.uniform(10, 40) for _ in stages]))[::-1].copy(),
        square(dice, 5, 1.0, 9.0)[:, :4].copy(),
        np.array([dice.choice([0.0, 2.0, math.inf]) for _ in range(5)]),
        NOTHING if dice.random() < 0.5 else square(dice, 5, 0.0, 1.0)[:, :4] < 0.4,
        1.0 + 0.1 * stages,
        0.5,
        np.array([1, 3]),
        np.array([2e9, 1e9]),
        square(dice, 5, 1e8, 4e9),
        np.array([dice.uniform(1e8, 4e9) for _ in range(5)]),
        square(dice, 5, 0.0, 0.1),
    )


def every_region(
    slots: np.ndarray,
    stages: np.ndarray,
    time_score: np.ndarray,
    bill: np.ndarray,
    begin: np.ndarray,
    breaks: np.ndarray,
    hold: np.ndarray,
    egress_weight: float,
    lies_in: np.ndarray,
    lies_bytes: np.ndarray,
    link_bps: np.ndarray,
    access_bps: np.ndarray,
    one_way_usd_per_gb: np.ndarray,
) -> float:
    """The least score over all regions and rungs, by what it is made of."""
    scores = [math.inf]
    for region in range(slots.size):
        parts = list(zip(lies_in, lies_bytes, strict=True))
        travel_s = max(
            0.0 if src == region else sent * 8 / min(link_bps[src, region], *access_bps[[src, region]])
            for src, sent in parts
        )
        usd = sum(sent / 1e9 * one_way_usd_per_gb[src, region] for src, sent in parts)
        for rung, count in enumerate(stages):
            if count <= slots[region] and not (breaks.size and breaks[region, rung]):
                stays = time_score[rung] + bill[region, rung] + begin[region]
                scores.append(stays + travel_s * hold[rung] + egress_weight * usd)
    return float(min(scores))


def test_the_best_region_is_the_best_of_all_with_room() -> None:
    dice, with_room = random.Random(2), 0
    for _ in range(200):
        arguments = region_arguments(dice)
        due = every_region(*arguments)  # type: ignore[arg-type]
        found = compiled(region_kernel.run)(*arguments)  # type: ignore[arg-type]
        assert found == region_kernel.run(*arguments)  # type: ignore[arg-type]
        assert found[0] == pytest.approx(due)
        with_room += math.isfinite(due)
    assert 50 < with_room < 200


def chain_arguments(dice: random.Random, bound: float) -> tuple[object, ...]:
    """Five regions, four rungs, cuts granted what they need and twice that."""
    link_bps = square(dice, 5, 5e8, 4e9)
    np.fill_diagonal(link_bps, 0.0)
    stages = np.array([2, 3, 5, 8])
    return (
        np.array([dice.choice([0, 1, 2, 3]) for _ in range(5)]),
        stages,
        np.sort(np.array([dice.uniform(10, 40) for _ in stages]))[::-1].copy(),
        square(dice, 5, 1.0, 9.0)[:, :4].copy(),
        np.array([dice.choice([0.0, 0.5, math.inf]) for _ in range(5)]),
        NOTHING if dice.random() < 0.5 else square(dice, 5, 0.0, 1.0)[:, :4] < 0.3,
        np.array([5e8, 6e8, 8e8, 1e9]).astype(np.int64),
        np.array([1, 2]),
        3e8,
        1.0 + 0.1 * stages,
        0.5,
        square(dice, 5, 0.0, 0.1),
        square(dice, 5, 0.0, 0.1),
        link_bps,
        np.full(5, 3e9),
        4,
        10_000,
        bound,
    )


def test_every_chain_is_better_than_those_before_and_compiling_changes_none() -> None:
    dice, several = random.Random(3), 0
    for bound in [math.inf, 45.0, 30.0] * 40:
        arguments = chain_arguments(dice, bound)
        twin = chain_kernel.each_better(*arguments)  # type: ignore[arg-type]
        found = compiled(chain_kernel.each_better, chain_kernel.run, chain_kernel.ascending)(*arguments)  # type: ignore[arg-type]
        for one, other in zip(found, twin, strict=True):
            assert np.array_equal(one, other)
        scores = [bound, *found[0].tolist()]
        assert scores == sorted(set(scores), reverse=True)
        several += len(scores) > 2
    assert several > 10


def test_the_last_of_those_chains_is_the_best_of_every_number_of_stages_and_width() -> None:
    dice, found_any = random.Random(4), 0
    for _ in range(100):
        arguments = chain_arguments(dice, math.inf)
        slots, stages, time_score, bill, begin, breaks, need_bps, widths, bits, delay, *rest = arguments
        weight, latency, egress, link_bps, access, longest, budget, _ = rest
        assert isinstance(slots, np.ndarray)
        pair = np.minimum(np.minimum(link_bps, link_bps.T), np.minimum(access[:, None], access))  # type: ignore[attr-defined]
        best = math.inf
        for rung, width in np.ndindex(4, 2):
            need = float(need_bps[rung] * widths[width])  # type: ignore[index]
            if breaks.size and breaks[slots > 0, rung].all():  # type: ignore[attr-defined, index]
                continue
            cost, path, _ = compiled(chain_kernel.run, chain_kernel.ascending)(
                *(slots, bill[:, rung] / stages[rung], latency, egress, pair, access, begin),  # type: ignore[index]
                *(need, bits / need, delay[rung], weight, int(stages[rung]), longest, budget, math.inf),  # type: ignore[index, operator]
            )
            if path.size > 1:
                best = min(best, time_score[rung] + cost)  # type: ignore[index]
        scores = compiled(chain_kernel.each_better, chain_kernel.run, chain_kernel.ascending)(*arguments)[
            0
        ].tolist()  # type: ignore[arg-type]
        # A chain of one region may be cheaper; then none of several is told of that number of stages.
        assert min(scores, default=math.inf) == pytest.approx(best)
        found_any += bool(scores)
    assert found_any > 20
