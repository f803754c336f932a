"""The matrices of layers: in which precision they multiply, and that their gradients can be left for later."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from agents.worker.left import LeftGradients


class Matrix(nn.Linear):
    """x Wᵀ, multiplied in `dtype`, whatever the dtypes of x and of the weights W are."""

    def __init__(self, inputs: int, outputs: int, dtype: torch.dtype) -> None:
        super().__init__(inputs, outputs, bias=False)
        self._dtype = dtype
        self._shares_copy = False
        self._copy: Tensor | None = None
        self.left: LeftGradients | None = None
        """Where backwards leave the gradient of the weights; None: they compute it."""

    def share_copy(self) -> None:
        """Let all forwards until `forget_copy` compute with one copy of the weights, where `dtype` asks for one.

        Each of them keeps the copy for its backward, so else there would be as many as micro-batches in flight.
        """
        self._shares_copy = True

    def forget_copy(self) -> None:
        """The weights have changed."""
        self._copy = None

    @property
    def shared_copy(self) -> Tensor | None:
        """The copy that forwards share now."""
        return self._copy

    @property
    def shared_copy_bytes(self) -> int:
        """What a copy takes that forwards share; 0 where each makes its own, or none."""
        needs_copy = self._dtype != self.weight.dtype
        return self._dtype.itemsize * self.weight.numel() if self._shares_copy and needs_copy else 0

    def forward(self, x: Tensor) -> Tensor:
        weight, x = self._in_dtype(), x.to(self._dtype)
        if self.left is None:
            return functional.linear(x, weight)
        product: Tensor = _Leaving.apply(x, weight.detach(), self.weight, self.left)  # type: ignore[no-untyped-call]
        return product

    def _in_dtype(self) -> Tensor:
        if self._dtype == self.weight.dtype:
            return self.weight
        if self._copy is not None:
            return self._copy
        copy = self.weight.to(self._dtype)
        if self._shares_copy and copy.requires_grad:
            self._copy = copy
        return copy


class _Leaving(torch.autograd.Function):
    """x Wᵀ, whose backward leaves the gradient of W.

    As torch's own does, it keeps the storage that the weights have at the forward, not the parameter.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, parameter: nn.Parameter, left: LeftGradients) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.parameter, ctx.left = parameter, left
        return functional.linear(x, weight)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        x, weight = ctx.saved_tensors
        (gradient,) = gradients
        ctx.left.leave_product(ctx.parameter, x, gradient)
        return gradient @ weight, None, None, None
