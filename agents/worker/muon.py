"""Muon: momentum whose matrices are orthogonalised before they are applied, and AdamW for all else.

Jordan et al. 2024 (kellerjordan.github.io/posts/muon); step size and weight decay as in Liu et al. 2025 (2502.16982),
so that a learning rate means what it means for AdamW.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, overload

import torch
from torch import Tensor, nn

MOMENTUM = 0.95
MOMENTUM_BUFFER = "momentum_buffer"
NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
"""a, b, c of X ← aX + b(XXᵀ)X + c(XXᵀ)²X, whose singular values come near 1 from anywhere in (0, 1]."""
NEWTON_SCHULZ_STEPS = 5
ADAM_RMS = 0.2
"""The root mean square of what AdamW typically applies, in learning rates."""


class Muon(torch.optim.Optimizer):
    """Muon over matrices; the other groups are AdamW's, and step with it."""

    def __init__(
        self,
        matrices: Sequence[nn.Parameter],
        others: Sequence[dict[str, Any]],
        lr: float,
        weight_decay: float,
        betas: tuple[float, float],
    ) -> None:
        """`others` are groups of torch.optim.AdamW."""
        groups = [{"params": list(matrices), "weight_decay": weight_decay}, *others]
        super().__init__(groups, {"lr": lr})
        self._adam = torch.optim.AdamW(self.param_groups[1:], lr=lr, betas=betas, fused=True)
        self._adam.state = self.state
        self._matrices = frozenset(map(id, matrices))

    def orthogonalises(self, parameter: Tensor) -> bool:
        """Whether a parameter is stepped by Muon itself."""
        return id(parameter) in self._matrices

    @overload
    def step(self, closure: None = None) -> None: ...

    @overload
    def step(self, closure: Callable[[], float]) -> float: ...

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """m ← βm + (1 − β)g, then W ← (1 − lr·decay)·W − lr·`direction`."""
        loss = None if closure is None else closure()
        self._adam.step()
        group = self.param_groups[0]
        for parameter in group["params"]:
            gradient = parameter.grad
            if gradient is None:
                continue
            state = self.state[parameter]
            if MOMENTUM_BUFFER not in state:
                state[MOMENTUM_BUFFER] = torch.zeros_like(parameter)
            momentum = state[MOMENTUM_BUFFER].lerp_(gradient, 1 - MOMENTUM)
            parameter.mul_(1 - group["lr"] * group["weight_decay"])
            parameter.add_(direction(momentum, gradient), alpha=-group["lr"])
        return loss


def direction(momentum: Tensor, gradient: Tensor) -> Tensor:
    """What a learning rate of 1 would subtract: Nesterov's momentum, orthogonalised, with AdamW's typical size."""
    ahead = gradient.lerp(momentum, MOMENTUM)
    return orthogonalised(ahead).mul_(ADAM_RMS * math.sqrt(max(ahead.shape)))


def orthogonalised(matrix: Tensor) -> Tensor:
    """UVᵀ of matrix = USVᵀ, with singular values between about 0.7 and 1.2 instead of 1."""
    a, b, c = NEWTON_SCHULZ
    wide = matrix.shape[0] <= matrix.shape[1]
    x: Tensor = matrix if wide else matrix.mT
    x = x / (x.norm() + 1e-7)
    for _ in range(NEWTON_SCHULZ_STEPS):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x if wide else x.mT
