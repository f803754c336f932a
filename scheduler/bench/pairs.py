"""Policies against each other on the same worlds: ratios, with intervals by the bootstrap over paired draws."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

import numpy as np

Values = Mapping[int, float]
"""A figure of one policy in one cell, by the number of the draw."""

_RESAMPLES: Final = 2000
_SEED: Final = 20230619
_BOUNDS: Final = (2.5, 97.5)


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean or a ratio, its 95 % interval, and the number of draws (in all cells) that it is of."""

    value: float
    low: float
    high: float
    draws: int


def mean(values: Values) -> Estimate:
    """The mean over the draws of a cell. Raises ValueError where there are none."""
    if not values:
        raise ValueError("no draws to take the mean of")
    numbers = np.asarray([values[draw] for draw in sorted(values)])
    weights = _weights(len(numbers))
    return _estimate(float(numbers.mean()), weights @ numbers / len(numbers), len(numbers))


def ratio(cells: Sequence[tuple[Values, Values]]) -> Estimate | None:
    """Of two policies, over the draws that both have: the geometric mean over the cells of the ratio in each.

    In a cell that is the geometric mean of the ratios of its draws; where a figure is not above 0 in every draw, the
    ratio of the sums (None where that cannot be told either). Draws are resampled for all cells together, as cells
    share what was drawn. None where nothing can be paired.
    """
    paired = _all_paired(cells)
    if not paired:
        return None
    logs = _resampled_logs(paired)
    # a cell none of whose draws is in a resample says nothing there
    told = np.isfinite(logs)
    some = told.any(axis=1)
    resampled = np.where(told, logs, 0.0).sum(axis=1)[some] / told.sum(axis=1)[some]
    return _estimate(_mean_ratio(paired), np.exp(resampled), sum(len(pair.draws) for pair in paired))


def ratio_alone(cells: Sequence[tuple[Values, Values]]) -> float | None:
    """The same ratio without its interval, which is what takes long."""
    paired = _all_paired(cells)
    return _mean_ratio(paired) if paired else None


@dataclass(frozen=True, slots=True)
class _Pair:
    """One cell: the draws that both policies have, and their figures in that order."""

    draws: tuple[int, ...]
    own: np.ndarray
    base: np.ndarray

    @property
    def positive(self) -> bool:
        """Whether both figures are above 0 in every draw."""
        return bool(self.own.min() > 0 and self.base.min() > 0)

    @property
    def log_ratio(self) -> float:
        """The logarithm of the cell's ratio over all of its draws; not finite where there is none."""
        if self.positive:
            return float(np.log(self.own / self.base).mean())
        with np.errstate(divide="ignore", invalid="ignore"):
            return float(np.log(self.own.sum() / self.base.sum()))


def _resampled_logs(paired: Sequence[_Pair]) -> np.ndarray:
    """The logarithm of the ratio of each cell (column) in each resample (row); not finite where that has none of its
    draws."""
    draws = sorted({draw for pair in paired for draw in pair.draws})
    place = {draw: index for index, draw in enumerate(draws)}
    own, base, logs, told = (np.zeros((len(draws), len(paired))) for _ in range(4))
    for column, pair in enumerate(paired):
        rows = [place[draw] for draw in pair.draws]
        own[rows, column], base[rows, column], told[rows, column] = pair.own, pair.base, 1.0
        if pair.positive:
            logs[rows, column] = np.log(pair.own / pair.base)
    weights = _weights(len(draws))
    with np.errstate(divide="ignore", invalid="ignore"):
        means: np.ndarray = (weights @ logs) / (weights @ told)
        summed = [column for column, pair in enumerate(paired) if not pair.positive]
        if summed:
            means[:, summed] = np.log((weights @ own[:, summed]) / (weights @ base[:, summed]))
    return means


def _all_paired(cells: Sequence[tuple[Values, Values]]) -> list[_Pair]:
    return [pair for pair in (_paired(*cell) for cell in cells) if pair is not None]


def _mean_ratio(paired: Sequence[_Pair]) -> float:
    return math.exp(math.fsum(pair.log_ratio for pair in paired) / len(paired))


def _paired(own: Values, base: Values) -> _Pair | None:
    draws = tuple(sorted(own.keys() & base.keys()))
    if not draws:
        return None
    pair = _Pair(draws, np.asarray([own[d] for d in draws]), np.asarray([base[d] for d in draws]))
    return pair if math.isfinite(pair.log_ratio) else None


@cache
def _weights(draws: int) -> np.ndarray:
    """How often each draw is in each resample; the same for the same number of draws."""
    random = np.random.default_rng(_SEED)
    weights = random.multinomial(draws, np.full(draws, 1.0 / draws), size=_RESAMPLES).astype(float)
    weights.flags.writeable = False
    return weights


def _estimate(value: float, resampled: np.ndarray, draws: int) -> Estimate:
    low, high = (float(each) for each in np.percentile(resampled, _BOUNDS))
    return Estimate(value, low, high, draws)
