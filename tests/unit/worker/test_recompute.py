"""Recomputation is done once a backward, however many parts the backward has, and changes nothing that comes of it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.distributed.pipelining._backward import stage_backward_input, stage_backward_weight

from agents.worker.recompute import recomputed


class Counted(nn.Module):
    """A layer with a norm and two matrices that counts how often it runs."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.norm, self.up, self.down = nn.LayerNorm(8), nn.Linear(8, 16), nn.Linear(16, 8)
        self.runs = 0

    def forward(self, x: Tensor) -> Tensor:
        self.runs += 1
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))  # type: ignore[no-any-return]


def whole(output: Tensor, x: Tensor, layer: nn.Module) -> Tensor:
    output.backward(torch.ones_like(output))
    assert x.grad is not None
    return x.grad


def in_parts(output: Tensor, x: Tensor, layer: nn.Module) -> Tensor:
    (found,), groups = stage_backward_input([output], [torch.ones_like(output)], [x], layer.parameters())
    stage_backward_weight(layer.parameters(), groups)
    assert found is not None
    return found


@pytest.mark.parametrize("backward", [whole, in_parts])
@pytest.mark.parametrize("half_precision", [False, True])
def test_a_backward_runs_the_function_once_more_and_has_the_same_gradients(
    backward: Callable[[Tensor, Tensor, nn.Module], Tensor], half_precision: bool
) -> None:
    gradients, runs = [], []
    for recompute in (False, True):
        layer = Counted()
        x = torch.linspace(-1, 1, 24).view(3, 8).requires_grad_()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=half_precision):
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
