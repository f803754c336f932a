"""Error feedback for a gradient that is one step late: each step adds what the step before it got wrong.

Zmushko et al., arXiv 2606.30634. With u the complete update of the base optimizer (learning rate, momentum and
decoupled weight decay included), x ← x − u_t − c (u_t − u_{t−1}); the first step is plain. What is remembered is u,
not the corrected step.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

LAST_UPDATE = "last_update"
"""Where u_{t−1} stands in the optimizer's state of a parameter: checkpoints and roll-backs take it along."""


class ErrorFeedback:
    """Steps of any optimizer, corrected. Costs one more tensor the size of the weights."""

    def __init__(
        self, optimizer: torch.optim.Optimizer, parameters: Sequence[nn.Parameter], strength: float = 1.0
    ) -> None:
        """`strength` is c, 1 in the paper."""
        self._optimizer, self._parameters, self._strength = optimizer, parameters, strength

    def step(self) -> None:
        """One corrected step, in place."""
        before = [parameter.data.clone() for parameter in self._parameters]
        self._optimizer.step()
        for parameter, old in zip(self._parameters, before, strict=True):
            update = old.sub_(parameter.data)
            state = self._optimizer.state[parameter]
            last = state.get(LAST_UPDATE)
            if last is not None:
                parameter.data.sub_(update - last, alpha=self._strength)
            state[LAST_UPDATE] = update
