"""The timeline of a windowed 1F1B pipeline as one loop over numbers, to be compiled.

Only what numba compiles may stand in `run`. It is compiled at its first use, not at import, and the machine code is
kept beside this file or, where that folder is read-only, in the user's cache folder.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Kernel = Callable[[Floats, Floats, Floats, Floats, NDArray[np.int64], int, bool], float]


def run(
    forward: Floats,
    backward: Floats,
    latency: Floats,
    transfer: Floats,
    caps: NDArray[np.int64],
    micro_batches: int,
    blocking: bool,
) -> float:
    """Seconds until the last stage action has ended. Times per stage or boundary, caps not growing, ≤ M.

    Stage s runs caps[s] forwards, then backward m and forward m + caps[s] in turn. So if round m first advances
    every stage, in pipeline order, to min(m + caps[s], M) forwards, and then runs backward m of every stage, in
    reverse order, all that an action waits for has been computed before it. O(K·M).
    """
    stages = forward.size
    free = np.zeros(stages)  # when the stage can start its next action
    up_free = np.zeros(stages)  # when the link to the next stage is free, forward direction
    down_free = np.zeros(stages)  # the same link, backward direction
    arrival = np.zeros((stages, micro_batches))  # of the input of forward m at stage s
    done = np.zeros(stages, dtype=np.int64)  # forwards run
    last = 0.0
    for m in range(micro_batches):
        for s in range(stages):
            target = min(m + caps[s], micro_batches)
            while done[s] < target:
                n = done[s]
                end = max(free[s], arrival[s, n]) + forward[s]
                free[s] = end
                if s + 1 < stages:
                    sent = max(end, up_free[s]) + transfer[s]
                    up_free[s] = sent
                    arrival[s + 1, n] = sent + latency[s]
                    if blocking:
                        free[s] = sent + latency[s]
                done[s] = n + 1
        ready = 0.0
        for s in range(stages - 1, -1, -1):
            end = max(free[s], ready) + backward[s]
            free[s] = end
            last = max(last, end)
            if s > 0:
                sent = max(end, down_free[s - 1]) + transfer[s - 1]
                down_free[s - 1] = sent
                ready = sent + latency[s - 1]
                if blocking:
                    free[s] = ready
    return last


@cache
def compiled() -> Kernel:
    """`run` as machine code; about a second at the very first call, a tenth where it is cached."""
    import numba  # here, because it takes long to import and most who import the scheduler never simulate

    try:
        kernel: Any = numba.njit(cache=True)(run)
    except RuntimeError:  # numba found no folder it may write to: compile for this process only
        kernel = numba.njit(run)
    return kernel  # type: ignore[no-any-return]
