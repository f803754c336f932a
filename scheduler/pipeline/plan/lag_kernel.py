"""The timeline of a window with split, lagging backwards as one loop over numbers, for `kernel.compiled`."""

from __future__ import annotations

import numpy as np

from scheduler.pipeline.kernel import Counts, Floats


def run_lagged(
    forward: Floats,
    input_gradient: Floats,
    weight_gradient: Floats,
    latency: Floats,
    transfer: Floats,
    caps: Counts,
    lags: Counts,
    micro_batches: int,
) -> float:
    """Seconds until the last action has ended, of `split_orders.lagged(caps, lags)` with non-blocking sends.

    Times per stage or boundary, caps not growing, ≤ M. Stage s runs caps[s] forwards, then I of micro-batch m, W of
    m − lags[s] and F of m + caps[s] in turn. As in `scheduler.pipeline.kernel.run` round m first advances all forwards,
    in pipeline order, and then runs I of every stage in reverse order; W waits for nobody else. O(K·M) steps,
    O(K·caps[0]) memory.
    """
    stages = forward.size
    free = np.zeros(stages)  # when the stage can start its next action
    up_free = np.zeros(stages)  # when the link to the next stage is free, forward direction
    down_free = np.zeros(stages)  # the same link, backward direction
    held = 1  # a power of two ≥ caps[0]: no more inputs than that wait at a stage
    while held < caps[0]:
        held *= 2
    arrival = np.zeros((stages, held))  # of the input of forward m at stage s, in slot m mod held
    done = np.zeros(stages, dtype=np.int64)  # forwards run
    for m in range(micro_batches):
        for s in range(stages):
            target = min(m + caps[s], micro_batches)
            while done[s] < target:
                n = done[s]
                end = max(free[s], arrival[s, n & (held - 1)]) + forward[s]
                free[s] = end
                if s + 1 < stages:
                    up_free[s] = max(end, up_free[s]) + transfer[s]
                    arrival[s + 1, n & (held - 1)] = up_free[s] + latency[s]
                done[s] = n + 1
        ready = 0.0
        for s in range(stages - 1, -1, -1):
            end = max(free[s], ready) + input_gradient[s]
            if s > 0:
                down_free[s - 1] = max(end, down_free[s - 1]) + transfer[s - 1]
                ready = down_free[s - 1] + latency[s - 1]
            free[s] = end + weight_gradient[s] if m >= lags[s] else end
    last = 0.0
    for s in range(stages):
        last = max(last, free[s] + min(lags[s], micro_batches) * weight_gradient[s])
    return last
