"""Gradients of weights that a backward leaves for later: the second part of a split backward computes them.

The stages before a stage wait for the gradient of its input, nobody waits for those of its weights until the update (Qi
et al., arXiv 2401.10241). For a matrix, y = x Wᵀ, all that the latter take is x and the gradient of y, so that nothing
else of the micro-batch is kept.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn


class _Product(NamedTuple):
    """∂W = gradientᵀ x, over all but the last dimension of both."""

    weight: nn.Parameter
    x: Tensor
    gradient: Tensor

    def add(self) -> None:
        """To the gradient of the weight."""
        x, gradient = self.x.flatten(0, -2), self.gradient.flatten(0, -2)
        if self.weight.grad is None:
            self.weight.grad = (gradient.T @ x).to(self.weight.dtype)
        elif x.dtype == self.weight.grad.dtype:
            self.weight.grad.addmm_(gradient.T, x)
        else:
            self.weight.grad += gradient.T @ x


class LeftGradients:
    """What the backwards of a stage have left."""

    def __init__(self) -> None:
        self._left: list[_Product] = []
        self._held: dict[int, list[_Product]] = {}
        self.micro_batch_bytes = 0
        """What the first backward left; 0 before it has been through."""

    def leave_product(self, weight: nn.Parameter, x: Tensor, gradient: Tensor) -> None:
        """Add gradientᵀ x to the gradient of `weight` later, over all but the last dimension of both."""
        # The graph that x came from would stay with it.
        self._left.append(_Product(weight, x.detach(), gradient.detach()))

    def take(self) -> Callable[[], None]:
        """What has been left since the last call: it adds that to the gradients when called, once, and holds it."""
        taken, self._left = self._left, []
        self._held[id(taken)] = taken
        if not self.micro_batch_bytes:
            self.micro_batch_bytes = _bytes(taken)

        def add() -> None:
            del self._held[id(taken)]
            with torch.no_grad():
                while taken:
                    taken.pop().add()

        return add

    @property
    def held_bytes(self) -> int:
        """What is held: each storage once."""
        return _bytes([product for taken in (*self._held.values(), self._left) for product in taken])


def _bytes(products: list[_Product]) -> int:
    storages = {
        tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes()
        for product in products
        for tensor in (product.x, product.gradient)
    }
    return sum(storages.values())
