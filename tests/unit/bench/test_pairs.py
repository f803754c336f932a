"""Ratios are of the same draws, and their intervals are those of the bootstrap."""

from __future__ import annotations

import math

import numpy as np
import pytest

from scheduler.bench.pairs import mean, ratio


def test_a_policy_over_itself_is_one_whatever_the_draws() -> None:
    values = {0: 3.0, 1: 700.0, 2: 0.5}
    found = ratio([(values, values)])
    assert found is not None
    assert (found.value, found.low, found.high, found.draws) == (1.0, 1.0, 1.0, 3)


def test_the_ratio_is_the_geometric_mean_over_draws_then_over_cells() -> None:
    wide = ({0: 2.0, 1: 8.0}, {0: 1.0, 1: 1.0})
    narrow = ({0: 1.0}, {0: 1.0})
    found = ratio([wide, narrow])
    assert found is not None
    assert found.value == pytest.approx(2.0)
    assert found.draws == 3


def test_only_draws_that_both_have_count() -> None:
    found = ratio([({0: 2.0, 1: 100.0}, {0: 1.0, 2: 5.0})])
    assert found is not None
    assert (found.value, found.draws) == (pytest.approx(2.0), 1)
    assert ratio([({0: 1.0}, {1: 1.0})]) is None


def test_where_a_figure_is_not_above_nothing_the_sums_are_compared() -> None:
    found = ratio([({0: 0.0, 1: 3.0}, {0: 2.0, 1: 4.0})])
    assert found is not None
    assert found.value == pytest.approx(0.5)
    assert ratio([({0: 0.0}, {0: 0.0})]) is None


def test_the_interval_has_the_truth_as_often_as_it_says() -> None:
    """200 studies of 20 draws with a true ratio of 0.8 (log-normal noise): about 95 % of the intervals hold it."""
    draw = np.random.default_rng(11)
    held = 0
    for _ in range(200):
        base = draw.uniform(1, 100, 20)
        own = base * np.exp(draw.normal(math.log(0.8), 0.2, 20))
        found = ratio([(dict(enumerate(own)), dict(enumerate(base)))])
        assert found is not None
        assert found.low <= found.value <= found.high
        held += found.low <= 0.8 <= found.high
    assert 176 <= held <= 199


def test_intervals_are_the_same_every_time() -> None:
    cells = [({0: 1.0, 1: 2.0, 2: 4.0}, {0: 1.0, 1: 1.5, 2: 2.0})]
    assert ratio(cells) == ratio(cells)
    assert mean({0: 1.0, 1: 3.0}) == mean({1: 3.0, 0: 1.0})
    assert mean({0: 1.0, 1: 3.0}).value == 2.0
