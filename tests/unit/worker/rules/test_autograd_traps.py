"""What autograd keeps of weights: why a stash must be the very tensors, and an update of stashed weights must move."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import torch
from torch import Tensor, nn

from agents.worker.executor.rules.rhythm import Rhythm
from agents.worker.executor.rules.stashed import Stashed
from agents.worker.executor.rules.update import Update
from agents.worker.executor.rules.versions import unseen_by_autograd, version_of
from agents.worker.matrix import Matrix
from tests.unit.worker.rules.tiny import alone


class NormAndLinear(nn.Module):
    """Saves its norm's weight as a parameter, and its matrix as a view."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(4)
        self.linear = nn.Linear(4, 4, bias=False)
        with torch.no_grad():
            self.linear.weight.copy_(torch.arange(16.0).reshape(4, 4) / 7 - 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(self.norm(x))


class ClonedStash(Rhythm):
    """What looks like weight stashing: a copy kept at the forward stands there in the backward; updates in place."""

    def __init__(self, update: Update, every: int, in_flight: int) -> None:
        super().__init__(update, every, in_flight)
        self._stash: dict[int, list[Tensor]] = {}

    @contextmanager
    def forward_weights(self, micro_batch: int) -> Iterator[None]:
        self.counted.forward(micro_batch)
        self._stash[micro_batch] = [weight.clone() for weight in version_of(self.update.parameters)]
        yield

    @contextmanager
    def backward_weights(self, micro_batch: int) -> Iterator[None]:
        self.counted.backward(micro_batch)
        parameters, stash = self.update.parameters, self._stash.pop(micro_batch)
        latest = version_of(parameters)
        for parameter, kept in zip(parameters, stash, strict=True):
            parameter.data = kept
        yield
        for parameter, weight in zip(parameters, latest, strict=True):
            parameter.data = weight


def inputs() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    first, second = torch.randn(2, 3, 4, generator=generator)
    return first.requires_grad_(), second.requires_grad_()


def gradient_after_an_update(
    make: Callable[[Update, int, int], ClonedStash | Stashed],
) -> tuple[Tensor, Tensor]:
    """Of the input and of the norm, of a micro-batch between whose forward and backward an update came."""
    stage = NormAndLinear()
    optimizer = torch.optim.SGD(stage.parameters(), lr=0.5)
    rule = make(Update([stage], optimizer, optimizer, alone), 1, 2)
    outputs = []
    taken = inputs()
    for micro_batch, x in enumerate(taken):
        with rule.forward_weights(micro_batch):
            outputs.append(stage(x))
    with rule.backward_weights(0):
        outputs[0].square().sum().backward()
    rule.after_backward(0)
    with rule.backward_weights(1):
        outputs[1].square().sum().backward()
    gradient, norm = taken[1].grad, stage.norm.weight.grad
    assert gradient is not None
    assert norm is not None
    return gradient, norm


def gradient_at_the_forward_weights() -> tuple[Tensor, Tensor]:
    stage = NormAndLinear()
    x = inputs()[1]
    stage(x).square().sum().backward()
    assert x.grad is not None
    assert stage.norm.weight.grad is not None
    return x.grad, stage.norm.weight.grad


def test_stashing_gives_the_gradient_at_the_weights_of_the_forward() -> None:
    gradient, norm = gradient_after_an_update(Stashed)
    expected, of_norm = gradient_at_the_forward_weights()

    assert torch.equal(gradient, expected)
    assert torch.equal(norm, of_norm)


def test_a_copied_stash_mixes_old_norms_with_new_matrices_without_a_word() -> None:
    gradient, norm = gradient_after_an_update(ClonedStash)
    expected, of_norm = gradient_at_the_forward_weights()

    assert not torch.allclose(gradient, expected)
    assert not torch.allclose(norm, of_norm)


def test_autograd_refuses_an_update_in_place_that_it_sees() -> None:
    stage = NormAndLinear()
    output = stage(inputs()[0])
    with torch.no_grad():
        stage.linear.weight.mul_(2)
        stage.norm.weight.mul_(2)

    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        output.sum().backward()


def test_unseen_an_update_in_place_gives_the_backward_new_weights_everywhere() -> None:
    stage, x = NormAndLinear(), inputs()[0]
    output = stage(x)
    with torch.no_grad(), unseen_by_autograd(list(stage.parameters())):
        stage.linear.weight.mul_(2)
        stage.norm.weight.mul_(2)
    output.sum().backward()

    fresh = inputs()[0]
    NormAndLinear()(fresh).sum().backward()
    assert x.grad is not None
    assert fresh.grad is not None
    torch.testing.assert_close(x.grad, 4 * fresh.grad)


def test_in_bf16_matrices_are_those_of_the_forward_whatever_the_rule() -> None:
    """They multiply with bf16 copies, which the graph keeps: norms alone see an update."""
    stage, fresh = NormAndLinear(), NormAndLinear()
    for each in (stage, fresh):
        each.linear = Matrix(4, 4, torch.bfloat16)
    fresh.load_state_dict(stage.state_dict())
    x, again = inputs()[0], inputs()[0]
    output = stage(x)
    with torch.no_grad(), unseen_by_autograd(list(stage.parameters())):
        stage.linear.weight.mul_(2)
    output.sum().backward()

    fresh(again).sum().backward()
    assert x.grad is not None
    assert again.grad is not None
    assert torch.equal(x.grad, again.grad)
