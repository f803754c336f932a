"""PACI: no flush, no stash and no prediction; every computation uses the weights that are there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from agents.worker.executor.rules.rhythm import Rhythm


class Current(Rhythm):
    """A local step after every few local backwards, in place (Elam et al., arXiv 2606.07881).

    The activations of a micro-batch in flight come from older weights than its backward multiplies with: the drift,
    at most ⌈(in_flight − 1) / every⌉ updates.
    """

    @contextmanager
    def forward_weights(self, micro_batch: int) -> Iterator[None]:
        """The latest."""
        self.counted.forward(micro_batch)
        yield

    @contextmanager
    def backward_weights(self, micro_batch: int) -> Iterator[None]:
        """The latest."""
        self.counted.backward(micro_batch)
        yield
