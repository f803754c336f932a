"""Orthonormal matrices, and steps that stay on them: the Stiefel manifold St(d, r) = {A ∈ ℝ^{d×r}: AᵀA = I}.

SPEL is steepest descent on that manifold under the spectral norm (arXiv 2601.21487); MAPL (arXiv 2606.05484) learns
its projectors with it.
"""

from __future__ import annotations

import torch
from torch import Tensor

MOMENTUM = 0.95
ITERATIONS = 40
"""At most: enough for singular values down to 1e-8 of the largest, which grow by 15/8 in each."""
ORTHONORMAL = 1e-6
"""max|XᵀX − I| at which to stop: what fp32 can tell from zero."""


def orthonormal(hidden: int, rank: int, generator: torch.Generator) -> Tensor:
    """A random point of St(hidden, rank): the polar factor of a normal matrix, which is uniform there."""
    return msign(torch.randn(hidden, rank, generator=generator))


def deviation(matrix: Tensor) -> float:
    """max|AᵀA − I|: how far a matrix is from having orthonormal columns."""
    gram = matrix.detach().T @ matrix.detach()
    return float((gram - torch.eye(gram.shape[0], device=gram.device)).abs().max())


def msign(matrix: Tensor) -> Tensor:
    """The polar factor Y (YᵀY)^{−1/2} of Y [d, r], r ≤ d, in fp32: its singular values become 1. Zero stays zero.

    Newton–Schulz of degree 5, x ← x·(15 − 10x² + 3x⁴)/8 on the singular values: of third order near 1, and sure for
    those in (0, 1], so Y is scaled by √‖YᵀY‖_∞ ≥ ‖Y‖₂ first.
    """
    tiny = torch.finfo(torch.float32).tiny
    x = matrix.float()
    x = x / x.abs().max().clamp_min(tiny)  # or the squares below could overflow, or vanish
    gram = x.T @ x
    x = x / gram.abs().sum(dim=1).max().sqrt().clamp_min(tiny)
    identity = torch.eye(x.shape[1], device=x.device)
    for _ in range(ITERATIONS):
        gram = x.T @ x
        if float((gram - identity).abs().max()) < ORTHONORMAL:
            break
        x = x @ (1.875 * identity - 1.25 * gram + 0.375 * gram @ gram)
    return x


class Spel:
    """Moves a projector A against its gradient G and leaves it on the manifold:

    gR = G − A·sym(AᵀG);  m ← β·m + (1 − β)·gR;  A ← msign(A − α·msign(m)).
    """

    def __init__(self, projector: Tensor, step_size: float) -> None:
        """`projector` [d, r] is updated in place; `step_size` α is how far its columns turn at most, radians."""
        self.projector = projector
        self.momentum = torch.zeros_like(projector)
        self.step_size = step_size

    @torch.no_grad()
    def step(self, gradient: Tensor) -> None:
        """One update by the gradient [d, r] of the loss."""
        inner = self.projector.T @ gradient
        tangent = gradient - self.projector @ ((inner + inner.T) / 2)
        self.momentum.lerp_(tangent, 1 - MOMENTUM)
        direction = msign(self.momentum)
        self.projector.copy_(msign(self.projector - self.step_size * direction))
