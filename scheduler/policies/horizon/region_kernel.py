"""The search for the best region, and the best number of stages there, as one loop over numbers, to be compiled."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from scheduler.cost import BYTES_PER_GB

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]

NO_WIDTH: Final = 1e-3
"""Bits per second where there are none: state does not get there in any time that matters."""


def run(
    slots: Integers,
    stages: Integers,
    time_score: Floats,
    bill: Floats,
    begin: Floats,
    breaks: Flags,
    hold: Floats,
    egress_weight: float,
    lies_in: Integers,
    lies_bytes: Floats,
    link_bps: Floats,
    access_bps: Floats,
    one_way_usd_per_gb: Floats,
) -> tuple[float, int, int]:
    """The least score of all stages in one region, that region and the rung; infinite where there is no room.

    By region: `slots` free for a stage each, what it costs to `begin` there. By rung: its `stages`, its `time_score`,
    and what a second of it is worth, `hold`. [region, rung]: its `bill`, and whether it `breaks` a limit of the job
    (empty: nothing does). The state of the job lies in `lies_in`, so many bytes in each; roughly, it travels at what is
    free from there.
    """
    best, best_region, best_rung = np.inf, 0, 0
    for region in range(slots.size):
        if slots[region] < stages[0]:
            continue
        travel_s = travel_usd = 0.0
        for each in range(lies_in.size):
            src, sent = lies_in[each], lies_bytes[each]
            if src != region:
                access = min(access_bps[src], access_bps[region])
                width = max(min(link_bps[src, region], access), NO_WIDTH)
                travel_s = max(travel_s, sent * 8 / width)
            travel_usd += sent / BYTES_PER_GB * one_way_usd_per_gb[src, region]
        for rung in range(stages.size):
            if stages[rung] > slots[region]:
                break
            if breaks.size and breaks[region, rung]:
                continue
            score = time_score[rung] + bill[region, rung] + begin[region]
            score += travel_s * hold[rung] + egress_weight * travel_usd
            if score < best:
                best, best_region, best_rung = score, region, rung
    return best, best_region, best_rung
