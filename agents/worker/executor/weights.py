"""Which weights a stage computes with, and when they change: the port between an executor and the weight rules."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol


class WeightRule(Protocol):
    """Keeps the weights of one stage while several micro-batches are in flight.

    An executor calls, for every micro-batch (numbered from 0 since the pipeline was empty): `forward_weights` around
    its forward, `backward_weights` around its backward (of a split one, which only `flush` meets, around the first
    part), and `after_backward` once its gradient has been added to `parameter.grad`. When the pipeline is empty it
    calls `mean_gradients` and then `emptied`: after every iteration, or, of rules that update within one, after some.
    Calls of one stage never overlap.
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
        """If the rule updates when the pipeline is empty: put the mean gradients, by which it will, in place."""

    def emptied(self) -> None:
        """The pipeline is empty: update the weights, if the rule updates then."""
