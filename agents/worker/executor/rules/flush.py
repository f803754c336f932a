"""Synchronous training: one version of the weights, which changes after the last backward of the iteration."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from agents.worker.executor.rules.drift import Drift
from agents.worker.executor.rules.update import Update


class Flush:
    """All micro-batches of an iteration see the same weights; one step by the mean of their gradients."""

    def __init__(self, update: Update) -> None:
        self.update = update
        self._counted = Drift(bound=0)
        self._micro_batches = 0

    @property
    def drift(self) -> int:
        """Always 0."""
        return self._counted.most

    @contextmanager
    def forward_weights(self, micro_batch: int) -> Iterator[None]:
        """The weights of this iteration."""
        self._counted.forward(micro_batch)
        yield

    @contextmanager
    def backward_weights(self, micro_batch: int) -> Iterator[None]:
        """The weights of this iteration."""
        self._counted.backward(micro_batch)
        yield

    def after_backward(self, micro_batch: int) -> None:
        """Count it."""
        self._counted.ended(micro_batch)
        self._micro_batches += 1

    def mean_gradients(self) -> None:
        """Over the micro-batches of the iteration and the replicas."""
        self.update.reduce(self._micro_batches)

    def emptied(self) -> None:
        """The step."""
        self.update.step()
        self.update.clear()
        self._counted.updates += 1
        self._micro_batches = 0
