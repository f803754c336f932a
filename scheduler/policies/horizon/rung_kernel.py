"""What the rungs of a ladder come to in time and in money, as loops over numbers, to be compiled."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from scheduler.cost import SECONDS_PER_HOUR

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


def fastest(iteration_s: Floats, gpus: Integers, steps: float, gpu_s: float) -> tuple[int, float, float]:
    """The rung on which so many steps take least, each of its GPUs counting for `gpu_s`; its time without and with."""
    best, best_run_s, best_s = 0, np.inf, np.inf
    for rung in range(iteration_s.size):
        run_s = steps * iteration_s[rung]
        time_s = run_s * (1 + gpu_s * gpus[rung])
        if time_s < best_s:
            best, best_run_s, best_s = rung, run_s, time_s
    return best, best_run_s, best_s


def more_than_least_usd(
    iteration_s: Floats,
    gpus: Integers,
    draw_kw: Floats,
    owned_part: float,
    rent_usd_per_gpu_hour: float,
    steps: float,
    usd_per_kwh: float,
    rung: int,
) -> float:
    """What so many steps cost more on a rung than on the cheapest, in the mean over the pools.

    Electricity where they are owned, else rent.
    """
    here, least = 0.0, np.inf
    for each in range(iteration_s.size):
        usd_per_hour = draw_kw[each] * usd_per_kwh * owned_part + gpus[each] * rent_usd_per_gpu_hour
        usd = usd_per_hour * (steps * iteration_s[each]) / SECONDS_PER_HOUR
        least = min(least, usd)
        if each == rung:
            here = usd
    return here - least
