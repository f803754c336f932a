"""How late the weights of a step were, over all stages: for the rank that reports steps, beside training."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from agents.worker.asides import Asides
from agents.worker.executor.rules.rhythm import Rhythm
from agents.worker.gang import Gang
from agents.worker.gradient_norm import NORM_TAG
from agents.worker.progress import Late

LATENESS_TAG = NORM_TAG + 1


class Lateness:
    """What the rules of all stages of the first replica counted. The others keep the same bound."""

    def __init__(self, gang: Gang, teller: int, rules: Sequence[Rhythm]) -> None:
        """`rules` are those of this rank, `teller` the rank of the pipeline that tells."""
        self._rules = rules
        self._asides = Asides(gang, teller, LATENESS_TAG, 3)

    def step_ended(self) -> Callable[[], Late] | None:
        """To be called by every rank when its stages have gone backward in a step. On the rank that tells: what waits
        for the others, and knows it of all."""
        own = torch.tensor(
            [
                float(max(rule.counted.take_most() for rule in self._rules)),
                float(max(rule.counted.bound for rule in self._rules)),
                float(sum(rule.update.rolled_back for rule in self._rules)),
            ]
        )
        if not self._asides.tells:
            self._asides.send(own)
            return None
        others = self._asides.receive()
        return lambda: _over_all([own, *others()])


def _over_all(parts: Sequence[Tensor]) -> Late:
    drifts, bounds, rolled_back = torch.stack(list(parts)).unbind(1)
    return Late(int(drifts.max()), int(bounds.max()), int(rolled_back.sum()))
