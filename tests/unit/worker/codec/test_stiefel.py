"""A projector stays orthonormal whatever the gradients, and msign is the polar factor."""

from __future__ import annotations

import math

import pytest
import torch

from agents.worker.codec.stiefel import MOMENTUM, Spel, deviation, msign, orthonormal

SHAPES = [(64, 8), (64, 1), (96, 48), (24, 24), (512, 64)]


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def polar(matrix: torch.Tensor) -> torch.Tensor:
    left, _, right = torch.linalg.svd(matrix.double(), full_matrices=False)
    return (left @ right).float()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
def test_msign_is_the_polar_factor(shape: tuple[int, int], scale: float) -> None:
    matrix = torch.randn(shape, generator=generator(0))

    torch.testing.assert_close(msign(scale * matrix), polar(matrix), atol=1e-4, rtol=0)


def test_msign_reaches_singular_values_far_below_the_largest() -> None:
    left, right = orthonormal(64, 8, generator(1)), orthonormal(8, 8, generator(2))
    matrix = left @ torch.diag(torch.logspace(0, -5, 8)) @ right.T

    torch.testing.assert_close(msign(matrix), left @ right.T, atol=0.05, rtol=0)


def test_msign_of_nothing_is_nothing() -> None:
    assert torch.equal(msign(torch.zeros(8, 3)), torch.zeros(8, 3))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("step_size", [3e-5, 0.1, 0.5])
@pytest.mark.parametrize("kind", ["normal", "tiny", "huge", "of rank one", "none", "along the projector"])
def test_a_projector_is_orthonormal_after_every_step(
    shape: tuple[int, int], step_size: float, kind: str
) -> None:
    source = generator(3)
    projector = orthonormal(*shape, source)
    spel = Spel(projector, step_size)
    assert deviation(projector) < 1e-5
    for _ in range(12):
        gradient = torch.randn(shape, generator=source)
        if kind == "of rank one":
            gradient = torch.outer(gradient[:, 0], torch.randn(shape[1], generator=source))
        elif kind == "along the projector":
            gradient = projector @ (gradient.T @ gradient)
        spel.step(gradient * {"tiny": 1e-20, "huge": 1e20, "none": 0.0}.get(kind, 1.0))
        assert deviation(projector) < 1e-5


def test_a_step_goes_by_the_published_formulas() -> None:
    source = generator(4)
    projector = orthonormal(16, 4, source)
    a, m = projector.double(), torch.zeros(16, 4, dtype=torch.float64)
    spel = Spel(projector, 0.05)
    for _ in range(3):
        gradient = torch.randn(16, 4, generator=source)
        spel.step(gradient)

        g = gradient.double()
        symmetric = (a.T @ g + g.T @ a) / 2
        m = MOMENTUM * m + (1 - MOMENTUM) * (g - a @ symmetric)
        a = polar(a - 0.05 * polar(m).double()).double()
        torch.testing.assert_close(projector, a.float(), atol=2e-5, rtol=0)


def test_it_finds_the_subspace_that_holds_most() -> None:
    """maximise tr(AᵀCA): the principal subspace."""
    source = generator(5)
    basis = orthonormal(20, 20, source)
    covariance = basis @ torch.diag(torch.tensor([4.0] * 3 + [1.0] * 17)) @ basis.T
    projector = orthonormal(20, 3, source)
    spel = Spel(projector, 0.02)
    for _ in range(300):
        spel.step(-2 * covariance @ projector)

    held = torch.trace(projector.T @ covariance @ projector).item()
    assert math.isclose(held, 12.0, rel_tol=1e-2)
