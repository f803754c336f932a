"""Which weights a stage computes with, and when they change: the port between an executor and the weight rules."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol


class WeightRule(Protocol):
    """Keeps the weights of one stage while several micro-batches are in flight.

    An executor calls, for every micro-batch of an iteration (numbered from 0 in each): `forward_weights` around its
    forward, `backward_weights` around its backward (of a split one around both parts), and `after_backward` once its
    gradient has been added to `parameter.grad`. After the last backward of the iteration it calls
    `mean_gradients` and then `finish_iteration`. Calls of one stage never overlap.
    """

    @property
    def drift(self) -> int:
        """The most updates so far between the forward and the backward of one micro-batch."""

    def forward_weights(self, micro_batch: int) -> AbstractContextManager[None]:
        """The weights that this forward is to see stand in the module while the context is open."""

    def backward_weights(self, micro_batch: int) -> AbstractContextManager[None]:
        """The weights that this backward is to see stand in the module while the context is open."""

    def after_backward(self, micro_batch: int) -> None:
        """Update the weights now, if the rule updates within an iteration."""

    def mean_gradients(self) -> None:
        """If the rule updates at the end of an iteration: put the mean gradients, by which it will, in place."""

    def finish_iteration(self) -> None:
        """Update the weights at the end of an iteration, if the rule updates then."""
