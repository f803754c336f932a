"""Policies against each other on the same worlds: ratios, with intervals by the bootstrap over paired draws."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
    paired = [pair for pair in (_paired(*cell) for cell in cells) if pair is not None]
    if not paired:
        return None
    draws = sorted({draw for pair in paired for draw in pair.draws})
    place = {draw: index for index, draw in enumerate(draws)}
    weights = _weights(len(draws))
    logs = np.stack([pair.log_ratios(weights[:, [place[draw] for draw in pair.draws]]) for pair in paired])
    # a cell none of whose draws is in a resample says nothing there
    told = np.isfinite(logs)
    resampled = np.where(told, logs, 0.0).sum(axis=0)[told.any(axis=0)] / told.sum(axis=0)[told.any(axis=0)]
    point = float(np.mean([pair.log_ratios(np.ones((1, len(pair.draws))))[0] for pair in paired]))
    return _estimate(float(np.exp(point)), np.exp(resampled), sum(len(pair.draws) for pair in paired))


@dataclass(frozen=True, slots=True)
class _Pair:
    """One cell: the draws that both policies have, and their figures in that order."""

    draws: tuple[int, ...]
    own: np.ndarray
    base: np.ndarray

    def log_ratios(self, weights: np.ndarray) -> np.ndarray:
        """The logarithm of the cell's ratio under each row of weights of its draws; NaN where none has weight."""
        with np.errstate(divide="ignore", invalid="ignore"):
            if self.own.min() > 0 and self.base.min() > 0:
                means: np.ndarray = weights @ np.log(self.own / self.base) / weights.sum(axis=1)
                return means
            sums: np.ndarray = np.log((weights @ self.own) / (weights @ self.base))
            return sums


def _paired(own: Values, base: Values) -> _Pair | None:
    draws = tuple(sorted(own.keys() & base.keys()))
    if not draws:
        return None
    pair = _Pair(draws, np.asarray([own[d] for d in draws]), np.asarray([base[d] for d in draws]))
    return pair if np.isfinite(pair.log_ratios(np.ones((1, len(draws)))))[0] else None


def _weights(draws: int) -> np.ndarray:
    """How often each draw is in each resample; the same for the same number of draws."""
    random = np.random.default_rng(_SEED)
    return random.multinomial(draws, np.full(draws, 1.0 / draws), size=_RESAMPLES).astype(float)


def _estimate(value: float, resampled: np.ndarray, draws: int) -> Estimate:
    low, high = (float(each) for each in np.percentile(resampled, _BOUNDS))
    return Estimate(value, low, high, draws)
