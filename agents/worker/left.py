"""Gradients of weights that a backward leaves for later: the second part of a split backward computes them.

The stages before a stage wait for the gradient of its input, nobody waits for those of its weights until the update (Qi
et al., arXiv 2401.10241). For a matrix, y = x Wᵀ, all that the latter take is x and the gradient of y, so that of the
graph nothing else is kept. What a layer with few weights learns is computed at once, and added later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor, nn


class _Product(NamedTuple):
    """∂W = gradientᵀ x, over all but the last dimension of both."""

    weight: nn.Parameter
    x: Tensor
    gradient: Tensor

    def add(self) -> None:
        x, gradient = self.x.flatten(0, -2), self.gradient.flatten(0, -2)
        if self.weight.grad is not None and x.dtype == self.weight.grad.dtype:
            self.weight.grad.addmm_(gradient.T, x)
        else:
            _add(self.weight, gradient.T @ x)


class _Rows(NamedTuple):
    """∂W[ids] = gradient, summed where an id comes several times."""

    weight: nn.Parameter
    ids: Tensor
    gradient: Tensor

    def add(self) -> None:
        if self.weight.grad is None:
            self.weight.grad = torch.zeros_like(self.weight)
        gradient = self.gradient.flatten(0, -2).to(self.weight.dtype)
        self.weight.grad.index_add_(0, self.ids.flatten(), gradient)


class _Whole(NamedTuple):
    """∂W, computed."""

    weight: nn.Parameter
    gradient: Tensor

    def add(self) -> None:
        _add(self.weight, self.gradient)


class LeftGradients:
    """What the backwards of a stage have left."""

    def __init__(self, others: Sequence[nn.Parameter]) -> None:
        """`others` are the parameters whose gradients no layer leaves by itself."""
        self._others = others
        self._left: list[_Product | _Rows | _Whole] = []
        self._held: dict[int, list[_Product | _Rows | _Whole]] = {}

    def leave_product(self, weight: nn.Parameter, x: Tensor, gradient: Tensor) -> None:
        """Add gradientᵀ x to the gradient of `weight` later, over all but the last dimension of both."""
        self._left.append(_Product(weight, x, gradient))

    def leave_rows(self, weight: nn.Parameter, ids: Tensor, gradient: Tensor) -> None:
        """Add `gradient`, of rows of `weight`, to its gradient later."""
        self._left.append(_Rows(weight, ids, gradient))

    @contextmanager
    def leaving_others(self) -> Iterator[None]:
        """A backward in the body leaves the gradients of the other parameters as well, but for adding them."""
        before = [parameter.grad for parameter in self._others]
        for parameter in self._others:
            parameter.grad = None
        yield
        for parameter, gradient in zip(self._others, before, strict=True):
            if parameter.grad is not None:
                self._left.append(_Whole(parameter, parameter.grad))
            parameter.grad = gradient

    def take(self) -> Callable[[], None]:
        """What has been left since the last call: it adds that to the gradients when called, once, and holds it."""
        taken, self._left = self._left, []
        self._held[id(taken)] = taken

        def add() -> None:
            del self._held[id(taken)]
            while taken:
                taken.pop().add()

        return add

    @property
    def held_bytes(self) -> int:
        """What is held: each storage once."""
        tensors = (
            tensor
            for taken in (*self._held.values(), self._left)
            for left in taken
            for tensor in left
            if not isinstance(tensor, nn.Parameter)
        )
        storages = {
            tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in tensors
        }
        return sum(storages.values())


def _add(weight: nn.Parameter, gradient: Tensor) -> None:
    if weight.grad is None:
        weight.grad = gradient.to(weight.dtype)
    else:
        weight.grad += gradient
