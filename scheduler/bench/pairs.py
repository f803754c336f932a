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
    draws = sorted({draw for pair in paired for draw in pair.draws})
    place = {draw: index for index, draw in enumerate(draws)}
    weights = _weights(len(draws))
    logs = np.stack([pair.log_ratios(weights[:, [place[draw] for draw in pair.draws]]) for pair in paired])
    # a cell none of whose draws is in a resample says nothing there
    told = np.isfinite(logs)
    some = told.any(axis=0)
    resampled = np.where(told, logs, 0.0).sum(axis=0)[some] / told.sum(axis=0)[some]
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
    def log_ratio(self) -> float:
        """The logarithm of the cell's ratio over all of its draws; not finite where there is none."""
        return float(self.log_ratios(np.ones((1, len(self.draws))))[0])

    def log_ratios(self, weights: np.ndarray) -> np.ndarray:
        """The logarithm of the cell's ratio under each row of weights of its draws; NaN where none has weight."""
        with np.errstate(divide="ignore", invalid="ignore"):
            if self.own.min() > 0 and self.base.min() > 0:
                means: np.ndarray = weights @ np.log(self.own / self.base) / weights.sum(axis=1)
                return means
            sums: np.ndarray = np.log((weights @ self.own) / (weights @ self.base))
            return sums


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
