"""Updates that never leave numbers behind that are not finite: the last good state is put back instead."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from agents.worker.executor.rules.update import Average, Stepper, Update


class NotFiniteError(ArithmeticError):
    """Going back did not help: the run has diverged."""


class GuardedUpdate(Update):
    """An update that is taken back if its gradients or the weights after it are not finite.

    A loss that is not finite gives every stage such a gradient, so all of them go back without a word to one another;
    replicas see the same mean, and go back together. Weights whose step is bad lose that step. Weights whose
    gradient is bad lose the step before, the first suspect; the micro-batches in flight since then may bring bad
    gradients too, and find the same state to go back to. Costs a copy of weights and optimizer state.
    """

    def __init__(
        self,
        layers: Sequence[nn.Module],
        optimizer: torch.optim.Optimizer,
        stepper: Stepper,
        average: Average,
        patience: int,
        tell: Callable[[str], None],
    ) -> None:
        """`patience` is how many updates in a row may be taken back before NotFiniteError is raised."""
        super().__init__(layers, optimizer, stepper, average)
        self._patience, self._tell = patience, tell
        self._in_a_row = 0
        self._good = _State(self.parameters, optimizer)

    def apply(self, micro_batches: int) -> None:
        """As `Update.apply`, unless that is not finite."""
        self.reduce(micro_batches)
        gradients = [parameter.grad for parameter in self.parameters if parameter.grad is not None]
        if not _finite(gradients):
            self._go_back("gradients")
            return
        self._good.keep()
        self.step()
        if not _finite([parameter.data for parameter in self.parameters]):
            self._go_back("weights")
            return
        self._in_a_row = 0

    def _go_back(self, what: str) -> None:
        self._good.restore()
        self.rolled_back += 1
        self._in_a_row += 1
        self._tell(f"{what} are not finite: the update is taken back, {self.rolled_back} so far")
        if self._in_a_row > self._patience:
            raise NotFiniteError(
                f"{what} are not finite for the {self._in_a_row}th update in a row: a smaller learning_rate, "
                "or an earlier checkpoint, is needed"
            )


class _State:
    """Weights and optimizer state, kept in tensors of their own once there was a good update."""

    def __init__(self, parameters: Sequence[nn.Parameter], optimizer: torch.optim.Optimizer) -> None:
        self._parameters, self._optimizer = parameters, optimizer
        self._weights: list[Tensor] = []
        self._state: dict[Any, dict[str, Any]] = {}

    def keep(self) -> None:
        self._weights = [parameter.data.clone() for parameter in self._parameters]
        self._state = _copied(self._optimizer.state)

    def restore(self) -> None:
        """Bring back what was kept; if nothing was, no update has changed anything yet."""
        if not self._weights:
            return
        for parameter, weight in zip(self._parameters, self._weights, strict=True):
            parameter.data.copy_(weight)
        self._optimizer.state.clear()
        self._optimizer.state.update(_copied(self._state))


def _copied(state: dict[Any, Any]) -> dict[Any, dict[str, Any]]:
    return {
        parameter: {
            name: value.clone() if isinstance(value, Tensor) else value for name, value in values.items()
        }
        for parameter, values in state.items()
    }


def _finite(tensors: Sequence[Tensor]) -> bool:
    return bool(torch.stack([tensor.isfinite().all() for tensor in tensors]).all())
