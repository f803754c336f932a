"""What the electricity of jobs comes to at the very least: each at its cheapest number of stages, region and time.

Every job has the cheapest region to itself and sends nothing to another one. With static prices no policy can pay
less. Where prices move it is a mark beside the figures, not a proof: a policy may stop a job over the dear hours, and
a negative price pays whoever takes more.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from scheduler.bench.alone import Option
from scheduler.errors import InvalidValueError
from scheduler.price import PriceSeries
from scheduler.replay.jobs import ReplayJob
from scheduler.spec.scenario import Scenario

_HOUR_S = 3600.0


def cheapest_usd(
    scenario: Scenario, jobs: Sequence[ReplayJob], options: Sequence[tuple[Option, ...]], shift_s: float
) -> float:
    """Electricity of the jobs, each run without a break and begun in some hour of the `shift_s` after its submission.

    `options` are those of each job. Raises InvalidValueError where prices end before that.
    """
    regions = scenario.cluster.regions
    meters = {
        name: _Meter(series, regions[name].pue, scenario.start_s)
        for name, series in scenario.electricity.items()
    }
    return math.fsum(
        min(meter.least_usd(job.submit_s, shift_s, option) for option in choice for meter in meters.values())
        for job, choice in zip(jobs, options, strict=True)
    )


class _Meter:
    """Prices of one region, summed up beforehand. Times count from the start of the scenario."""

    def __init__(self, series: PriceSeries, pue: float, start_s: float) -> None:
        self._pue = pue
        self._flat = series.values[0] if len(series.values) == 1 and math.isinf(series.end_s) else None
        if self._flat is None:
            self._edges = np.asarray([*series.valid_from_s, series.end_s]) - start_s
            areas = np.diff(self._edges) * np.asarray(series.values)
            self._areas = np.concatenate([[0.0], np.cumsum(areas)])

    def least_usd(self, submit_s: float, shift_s: float, option: Option) -> float:
        """The least that the option costs here, begun up to `shift_s` after the submission."""
        if self._flat is not None:
            return self._flat * option.energy_kwh * self._pue
        begins_s = submit_s + np.arange(0.0, shift_s + 1.0, _HOUR_S)
        ends_s = begins_s + option.duration_s
        if ends_s[-1] > self._edges[-1]:
            raise InvalidValueError("prices", self._edges[-1], f"prices until {ends_s[-1]} s")
        areas = np.interp(ends_s, self._edges, self._areas) - np.interp(begins_s, self._edges, self._areas)
        return float(areas.min()) / option.duration_s * option.energy_kwh * self._pue
