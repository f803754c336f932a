"""One update of a stage's weights, whichever rule asks for it: mean gradient, mean over the replicas, a step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import torch
from torch import Tensor, nn

from agents.worker.executor.rules.versions import unseen_by_autograd

Average = Callable[[Sequence[Tensor]], None]
"""Replaces tensors by their means over the replicas of the stage; all of them call it in the same order."""


class Stepper(Protocol):
    """A torch optimizer, or what corrects the steps of one."""

    def step(self) -> object:
        """Change the parameters by their gradients."""


class Update:
    """Updates the layers of a stage by the gradients that backwards have summed in `parameter.grad`.

    The step is in place; a rule whose backwards still need the weights as they are moves the parameters to other
    tensors first.
    """

    def __init__(
        self,
        layers: Sequence[nn.Module],
        optimizer: torch.optim.Optimizer,
        stepper: Stepper,
        average: Average,
    ) -> None:
        self.optimizer = optimizer
        self.layers = [list(layer.parameters()) for layer in layers]
        self.parameters = [parameter for layer in self.layers for parameter in layer]
        self._stepper, self._average = stepper, average
        self.rolled_back = 0
        """How many updates were taken back."""

    def apply(self, micro_batches: int) -> None:
        """Step by the mean of the gradients of that many micro-batches. The gradients stay until `clear`."""
        self.reduce(micro_batches)
        self.step()

    def clear(self) -> None:
        """Drop the gradients."""
        self.optimizer.zero_grad()

    def reduce(self, micro_batches: int) -> None:
        """The mean over micro-batches and replicas, a layer at a time so that the copies stay small."""
        for layer in self.layers:
            gradients = [parameter.grad for parameter in layer if parameter.grad is not None]
            for gradient in gradients:
                gradient.div_(micro_batches)
            self._average(gradients)

    def step(self) -> None:
        """Step by the gradients as they are."""
        with unseen_by_autograd(self.parameters):
            self._stepper.step()
