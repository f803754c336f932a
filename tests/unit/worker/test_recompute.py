"""Recomputation is done once a backward, however many calls it is made of, and changes nothing that comes of it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from agents.worker.matrix import Matrix
from agents.worker.recompute import recomputed


class Counted(nn.Module):
    """A layer with a norm and two matrices that counts how often it runs."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.norm, self.up, self.down = nn.LayerNorm(8), Matrix(8, 16, dtype), Matrix(16, 8, dtype)
        self.runs = 0

    def forward(self, x: Tensor) -> Tensor:
        self.runs += 1
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))  # type: ignore[no-any-return]


def whole(output: Tensor, x: Tensor, layer: nn.Module) -> Tensor:
    output.backward(torch.ones_like(output))
    assert x.grad is not None
    return x.grad


def in_calls(output: Tensor, x: Tensor, layer: nn.Module) -> Tensor:
    output.backward(torch.ones_like(output), retain_graph=True, inputs=list(layer.parameters()))
    (found,) = torch.autograd.grad(output, x, torch.ones_like(output))
    return found


@pytest.mark.parametrize("backward", [whole, in_calls])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_backward_runs_the_function_once_more_and_has_the_same_gradients(
    backward: Callable[[Tensor, Tensor, nn.Module], Tensor], dtype: torch.dtype
) -> None:
    gradients, runs = [], []
    for recompute in (False, True):
        layer = Counted(dtype)
        x = torch.linspace(-1, 1, 24).view(3, 8).requires_grad_()
        output = recomputed(layer, x) if recompute else layer(x)
        found = backward(output, x, layer)
        gradients.append([found, *(parameter.grad for parameter in layer.parameters())])
        runs.append(layer.runs)

    assert runs == [1, 2]
    for kept, again in zip(*gradients, strict=True):
        assert torch.equal(kept, again)


def test_a_function_that_keeps_something_else_the_second_time_is_told() -> None:
    calls: list[None] = []

    def fickle(x: Tensor) -> Tensor:
        calls.append(None)
        return x.sin() if len(calls) == 1 else x.sin().cos()

    output = recomputed(fickle, torch.ones(3, requires_grad=True))

    with pytest.raises(RuntimeError, match="kept 2 tensors where the forward left out 1"):
        output.sum().backward()
