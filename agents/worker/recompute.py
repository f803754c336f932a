"""Recomputation: what a function would keep for its backward is computed again when the backward needs it.

torch.utils.checkpoint does the same, once for every autograd call; here it is done once for all calls, at the first,
and kept until the graph is gone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks


def recomputed(function: Callable[..., Tensor], *inputs: Tensor) -> Tensor:
    """function(*inputs), whose inner activations are computed again in the backward pass instead of kept.

    The function must draw no random numbers; weights are those that stand in it when the backward begins.
    """
    again = _Recomputation(function, inputs)
    with saved_tensors_hooks(again.leave_out, again.kept):
        return function(*inputs)


class _Recomputation:
    """Counts what the forward would have kept, and has it when the backward asks."""

    def __init__(self, function: Callable[..., Tensor], inputs: tuple[Tensor, ...]) -> None:
        self._function = function
        self._inputs = _keeping(inputs)
        self._left_out = 0
        self._kept: list[Tensor] = []

    def leave_out(self, tensor: Tensor) -> int:
        """Its number, in place of what would be kept."""
        self._left_out += 1
        return self._left_out - 1

    def kept(self, number: int) -> Tensor:
        """What would have been kept under that number."""
        if not self._kept:
            self._run_again()
        return self._kept[number]

    def _run_again(self) -> None:
        def keep(tensor: Tensor) -> Tensor:
            self._kept.append(tensor.detach())
            return tensor.detach()

        with torch.enable_grad(), saved_tensors_hooks(keep, lambda tensor: tensor):
            self._function(*(each.detach().requires_grad_(each.requires_grad) for each in self._inputs()))
        if len(self._kept) != self._left_out:
            raise RuntimeError(
                f"the recomputation kept {len(self._kept)} tensors where the forward left out {self._left_out}"
            )


def _keeping(inputs: tuple[Tensor, ...]) -> Callable[[], tuple[Tensor, ...]]:
    """Keeps the inputs as autograd keeps tensors: it tells when one is changed before they are asked for."""
    keeper: Any = _Inputs.apply(torch.empty(0, requires_grad=True), *inputs).grad_fn  # type: ignore[no-untyped-call]
    return lambda: keeper.saved_tensors


class _Inputs(torch.autograd.Function):
    """A node that is in no backward."""

    @staticmethod
    def forward(ctx: Any, asks_for_gradient: Tensor, *inputs: Tensor) -> Tensor:
        ctx.save_for_backward(*inputs)
        return torch.empty(0)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        raise RuntimeError("what keeps the inputs of a recomputation was asked for a gradient")
