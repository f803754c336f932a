"""What prices come to over times to come, as one loop over numbers, to be compiled."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def run(
    knots_s: Floats,
    steps: Floats,
    sums: Floats,
    lowest: float,
    before_s: float,
    durations_s: Floats,
    least: Floats,
) -> Floats:
    """[region, duration]: ∫ price dt from `before_s` on over each duration, price × seconds.

    `steps` and `sums` are those of `Prices`, a step at each knot, and `lowest` the lowest of all. For each duration a
    price counts down to its `least`.
    """
    integrals = np.empty((steps.shape[0], durations_s.size))
    first = np.searchsorted(knots_s, before_s, side="right") - 1
    for each in range(durations_s.size):
        until_s = before_s + durations_s[each]
        last = np.searchsorted(knots_s, until_s, side="right") - 1
        for region in range(steps.shape[0]):
            begun = sums[region, first] + steps[region, first] * (before_s - knots_s[first])
            ended = sums[region, last] + steps[region, last] * (until_s - knots_s[last])
            if least[each] > lowest:
                ended = 0.0
                for knot in range(last + 1):
                    price = max(steps[region, knot], least[each])
                    if knot == first:
                        begun = ended + price * (before_s - knots_s[knot])
                    until_knot_s = until_s if knot == last else knots_s[knot + 1]
                    ended += price * (until_knot_s - knots_s[knot])
            integrals[region, each] = ended - begun if before_s > 0 else ended
    return integrals
