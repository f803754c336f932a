"""A weight rule, looked at from outside: how far the weights of a forward are from those of its backward."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from agents.worker.executor.weights import WeightRule


class Watched:
    """Passes everything on to `rule`, and measures what a prediction is worth.

    For each micro-batch, with W the weights at its forward, Ŵ those that the rule let it see and W' those at its
    backward: ‖Ŵ − W'‖ / ‖W − W'‖, which is 1 without a prediction and 0 for a perfect one.
    """

    def __init__(self, rule: WeightRule, parameters: Sequence[nn.Parameter]) -> None:
        self.rule, self._parameters = rule, parameters
        self._seen: dict[int, tuple[Tensor, Tensor]] = {}
        self.ratios: list[float] = []
        """Of the micro-batches between whose forward and backward the weights changed, in their order."""

    @property
    def drift(self) -> int:
        """The rule's."""
        return self.rule.drift

    @contextmanager
    def forward_weights(self, micro_batch: int) -> Iterator[None]:
        """The rule's."""
        stale = self._flat()
        with self.rule.forward_weights(micro_batch):
            self._seen[micro_batch] = stale, self._flat()
            yield

    @contextmanager
    def backward_weights(self, micro_batch: int) -> Iterator[None]:
        """The rule's."""
        actual = self._flat()
        stale, seen = self._seen.pop(micro_batch)
        moved = float((stale - actual).norm())
        if moved > 0:
            self.ratios.append(float((seen - actual).norm()) / moved)
        with self.rule.backward_weights(micro_batch):
            yield

    def after_backward(self, micro_batch: int) -> None:
        """The rule's."""
        self.rule.after_backward(micro_batch)

    def mean_gradients(self) -> None:
        """The rule's."""
        self.rule.mean_gradients()

    def emptied(self) -> None:
        """The rule's."""
        self.rule.emptied()

    def _flat(self) -> Tensor:
        return torch.cat([parameter.data.reshape(-1) for parameter in self._parameters])
