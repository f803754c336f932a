"""Every rule trains a pipeline of four stages to exactly the weights that a plain loop without any rule gives."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor, nn

from agents.worker.executor.rules.choice import RuleChoice
from agents.worker.model import cross_entropy
from tests.unit.worker.rules.tiny import (
    STRICT,
    Make,
    adamw,
    batch,
    largest_difference,
    order_of,
    sgd,
    stage_modules,
    train,
)

M = 24


def whole_model_gradients(stages: Sequence[nn.Module], micro_batch: int) -> None:
    """Add those of a micro-batch, through all stages at once."""
    x, targets = batch(micro_batch)
    for stage in stages:
        x = stage(x)
    cross_entropy(x, targets).backward()


def weights(stages: Sequence[nn.Module]) -> list[Tensor]:
    return [parameter.data.clone() for stage in stages for parameter in stage.parameters()]


def put(stages: Sequence[nn.Module], values: Sequence[Tensor]) -> None:
    parameters = [parameter for stage in stages for parameter in stage.parameters()]
    for parameter, value in zip(parameters, values, strict=True):
        parameter.data = value.clone()


def mean_of(stages: Sequence[nn.Module], micro_batches: int) -> None:
    for stage in stages:
        for parameter in stage.parameters():
            assert parameter.grad is not None
            parameter.grad /= micro_batches


def step(optimizers: Sequence[torch.optim.Optimizer]) -> None:
    for optimizer in optimizers:
        optimizer.step()
        optimizer.zero_grad()


@pytest.mark.parametrize("make", [adamw, sgd])
def test_flush_is_training_without_a_pipeline(make: Make) -> None:
    stages = stage_modules()
    optimizers = [make(stage) for stage in stages]
    for iteration in range(3):
        for each in range(8):
            whole_model_gradients(stages, 8 * iteration + each)
        mean_of(stages, 8)
        step(optimizers)

    trained = train(RuleChoice("flush"), 8, make=make, iterations=3)

    assert largest_difference(trained.weights, weights(stages)) == 0.0
    assert [rule.drift for rule in trained.rules] == [0, 0, 0, 0]


@pytest.mark.parametrize(("every", "drift"), [(1, [3, 2, 1, 0]), (4, [1, 1, 1, 0])])
@pytest.mark.parametrize("make", [adamw, sgd])
def test_paci_is_each_stage_stepping_in_place_by_itself(every: int, drift: list[int], make: Make) -> None:
    trained = train(RuleChoice("current", every=every), M, make=make)

    assert largest_difference(trained.weights, paci_by_hand(every, make)) == 0.0
    assert [rule.drift for rule in trained.rules] == drift


def paci_by_hand(every: int, make: Make) -> list[Tensor]:
    """1F1B in slots, stages from the last to the first in each: in a slot nobody needs what another makes in it."""
    stages = stage_modules()
    optimizers = [make(stage) for stage in stages]
    todo = [list(actions) for actions in order_of(STRICT, M)]
    held: dict[tuple[int, int], tuple[Tensor, Tensor]] = {}
    forward: dict[tuple[int, int], Tensor] = {(0, each): batch(each)[0] for each in range(M)}
    back: dict[tuple[int, int], Tensor | None] = {}
    done = [0] * 4
    while any(todo):
        for number in (3, 2, 1, 0):
            if not todo[number]:
                continue
            _, op, each = todo[number][0]
            if (number, each) not in (forward if op == "F" else back):
                continue
            todo[number].pop(0)
            if op == "F":
                x = forward[number, each]
                x = x.detach().requires_grad_(x.is_floating_point())
                y = stages[number](x)
                if number == 3:
                    y = cross_entropy(y, batch(each)[1])
                    back[number, each] = None
                else:
                    forward[number + 1, each] = y.detach()
                held[number, each] = x, y
                continue
            x, y = held.pop((number, each))
            y.backward(back[number, each])
            if number:
                back[number - 1, each] = x.grad
            done[number] += 1
            if done[number] % every == 0:
                mean_of([stages[number]], every)
                in_place_outside_autograd(stages[number], optimizers[number])
    return weights(stages)


def in_place_outside_autograd(stage: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Step copies, and write what they became into the storage of the weights."""
    storage = [parameter.data for parameter in stage.parameters()]
    for parameter in stage.parameters():
        parameter.data = parameter.data.clone()
    with torch.autograd._unsafe_preserve_version_counter(tuple(stage.parameters())):
        optimizer.step()
    for parameter, home in zip(stage.parameters(), storage, strict=True):
        home.copy_(parameter.data)
        parameter.data = home
    optimizer.zero_grad()


@pytest.mark.parametrize("iterations", [1, 2])
@pytest.mark.parametrize("make", [adamw, sgd])
def test_double_buffered_is_a_gradient_one_step_late_everywhere(make: Make, iterations: int) -> None:
    stages = stage_modules()
    optimizers = [make(stage) for stage in stages]
    before = latest = weights(stages)
    for group in range(iterations * M // 4):
        put(stages, before)
        for each in range(4 * group, 4 * group + 4):
            whole_model_gradients(stages, each)
        mean_of(stages, 4)
        put(stages, latest)
        step(optimizers)
        before, latest = latest, weights(stages)

    trained = train(RuleChoice("double-buffered", every=4), M, make=make, iterations=iterations)

    assert largest_difference(trained.weights, latest) == 0.0


def stale_gradients(version: Callable[[int, int], int], every: int, make: Make) -> list[Tensor]:
    """Every stage's gradient of a micro-batch at the mixture of `version(stage, micro_batch)`, step by step."""
    stages = stage_modules()
    optimizers = [make(stage) for stage in stages]
    history = [[weights([stage])] for stage in stages]
    for each in range(M):
        for number, stage in enumerate(stages):
            put([stage], history[number][version(number, each)])
        whole_model_gradients(stages, each)
        if (each + 1) % every == 0:
            mean_of(stages, every)
            for number, stage in enumerate(stages):
                put([stage], history[number][-1])
            step(optimizers)
            for number, stage in enumerate(stages):
                history[number].append(weights([stage]))
    return [tensor for stage in history for tensor in stage[-1]]


@pytest.mark.parametrize(("every", "drift"), [(1, [3, 2, 1, 0]), (2, [2, 1, 1, 0])])
@pytest.mark.parametrize("make", [adamw, sgd])
def test_stashing_is_the_gradient_at_the_weights_of_each_forward(
    every: int, drift: list[int], make: Make
) -> None:
    expected = stale_gradients(lambda stage, each: max(0, each - STRICT[stage] + 1) // every, every, make)

    trained = train(RuleChoice("stashed", every=every), M, make=make)

    assert largest_difference(trained.weights, expected) == 0.0
    assert [rule.drift for rule in trained.rules] == drift


@pytest.mark.parametrize("name", ["current", "stashed", "predicted"])
def test_without_anything_in_flight_every_rule_is_plain_training(name: str) -> None:
    stages = stage_modules()
    optimizers = [adamw(stage) for stage in stages]
    for each in range(6):
        whole_model_gradients(stages, each)
        step(optimizers)

    trained = train(RuleChoice(name), 6, window=(1, 1, 1, 1))

    assert largest_difference(trained.weights, weights(stages)) == 0.0
