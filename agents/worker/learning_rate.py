"""The learning rate of a step: linear warm-up, then constant, linear or cosine down to a part of itself."""

from __future__ import annotations

import math

from agents.protocol import WorkerRateSchedule


def rate_factor(schedule: WorkerRateSchedule, step: int, steps: int) -> float:
    """What the learning rate is multiplied with in step `step` of `steps`, both counted from 1.

    The last warm-up step has all of it, the last step `schedule.final` (cosine: half a period, Loshchilov and Hutter
    2017, 1608.03983). A function of the step alone: a run that goes on from a checkpoint has the same.
    """
    if step <= schedule.warmup_steps:
        return step / schedule.warmup_steps
    falling = steps - schedule.warmup_steps
    progress = (step - schedule.warmup_steps) / falling
    match schedule.decay:
        case "constant":
            return 1.0
        case "linear":
            above = 1.0 - progress
        case "cosine":
            above = (1.0 + math.cos(math.pi * progress)) / 2
    return schedule.final + (1.0 - schedule.final) * above
