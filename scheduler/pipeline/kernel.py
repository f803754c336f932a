"""The timeline of a windowed 1F1B pipeline as one loop over numbers, and how such loops become machine code.

Only what numba compiles may stand in a loop that is handed to `compiled`, and of functions like it those alone that it
is handed with.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]
Loop = TypeVar("Loop", bound=Callable[..., Any])


def run(
    forward: Floats,
    backward: Floats,
    latency: Floats,
    transfer: Floats,
    caps: Counts,
    micro_batches: int,
    blocking: bool,
) -> float:
    """Seconds until the last stage action has ended. Times per stage or boundary, caps not growing, ≤ M.

    Stage s runs caps[s] forwards, then backward m and forward m + caps[s] in turn. So if round m first advances
    every stage, in pipeline order, to min(m + caps[s], M) forwards, and then runs backward m of every stage, in
    reverse order, all that an action waits for has been computed before it. O(K·M) steps, O(K·caps[0]) memory.
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
    last = 0.0
    for m in range(micro_batches):
        for s in range(stages):
            target = min(m + caps[s], micro_batches)
            while done[s] < target:
                n = done[s]
                end = max(free[s], arrival[s, n & (held - 1)]) + forward[s]
                free[s] = end
                if s + 1 < stages:
                    sent = max(end, up_free[s]) + transfer[s]
                    up_free[s] = sent
                    arrival[s + 1, n & (held - 1)] = sent + latency[s]
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
def compiled(loop: Loop, *parts: Callable[..., Any]) -> Loop:
    """The loop as machine code; about a second at the very first call, a tenth where it is cached.

    It is compiled at its first use, not at import, and the machine code is kept beside its file or, where that
    folder is read-only, in the user's cache folder. `parts` are the functions that it calls, of the same file: what is
    kept is known to be out of date by that file alone.
    """
    import numba  # here, because it takes long to import and most who import the scheduler never simulate

    for part in parts:
        numba.extending.register_jitable(part)
    try:
        machine_code: Any = numba.njit(cache=True, nogil=True)(loop)
    except RuntimeError:  # numba found no folder it may write to: compile for this process only
        machine_code = numba.njit(loop, nogil=True)
    return machine_code  # type: ignore[no-any-return]
