"""Two versions and no third, groups one after the other, and error feedback that corrects what changed."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from agents.worker.executor.rules.choice import RuleChoice
from agents.worker.executor.rules.double_buffered import DoubleBuffered
from agents.worker.executor.rules.drift import DriftError
from agents.worker.executor.rules.feedback import ErrorFeedback
from agents.worker.executor.rules.update import Update
from agents.worker.model import cross_entropy
from tests.unit.worker.rules.tiny import (
    Make,
    adamw,
    alone,
    batch,
    largest_difference,
    muon,
    stage_modules,
    train,
)


def one_weight(every: int, in_flight: int) -> tuple[nn.Linear, DoubleBuffered]:
    stage = nn.Linear(1, 1, bias=False)
    stage.weight.data.fill_(8.0)
    optimizer = torch.optim.SGD(stage.parameters(), lr=1.0)
    return stage, DoubleBuffered(Update([stage], optimizer, optimizer, alone), every, in_flight)


def test_a_group_sees_the_weights_after_all_updates_but_the_last() -> None:
    stage, rule = one_weight(every=2, in_flight=3)
    seen = []
    for micro_batch in range(8):
        with rule.forward_weights(micro_batch):
            seen.append(stage.weight.item())
        with rule.backward_weights(micro_batch):
            assert stage.weight.item() == seen[-1]
            stage.weight.grad = torch.ones(1, 1)
        rule.after_backward(micro_batch)

    # The gradient of a group is 1 (the second micro-batch overwrites the first's), of which the mean is half.
    assert seen == [8.0, 8.0, 8.0, 8.0, 7.5, 7.5, 7.0, 7.0]
    assert stage.weight.item() == 6.0


def test_there_are_never_more_than_two_tensors_of_a_weight() -> None:
    stage, rule = one_weight(every=2, in_flight=3)
    homes = set()
    for micro_batch in range(12):
        with rule.forward_weights(micro_batch):
            homes.add(stage.weight.data_ptr())
        homes.add(stage.weight.data_ptr())
        with rule.backward_weights(micro_batch):
            stage.weight.grad = torch.ones(1, 1)
        rule.after_backward(micro_batch)

    assert len(homes) == 2


def test_more_in_flight_than_two_versions_serve_is_refused() -> None:
    with pytest.raises(ValueError, match=r"update_every is 2 with 4 .* at least 3"):
        one_weight(every=2, in_flight=4)


def test_a_forward_two_groups_ahead_is_refused() -> None:
    _, rule = one_weight(every=2, in_flight=3)
    with (
        pytest.raises(DriftError, match="needs the weights after 1 updates"),
        rule.forward_weights(4),
    ):
        pass


def test_a_backward_of_the_group_behind_is_refused() -> None:
    _, rule = one_weight(every=2, in_flight=3)
    for micro_batch in (0, 1, 2):
        with rule.forward_weights(micro_batch):
            pass
    with pytest.raises(DriftError, match="one after the other"), rule.backward_weights(2):
        pass


def feedback_on(gradients: list[float], strength: float = 1.0) -> list[float]:
    weight = nn.Parameter(torch.tensor([64.0], dtype=torch.float64))
    optimizer = torch.optim.SGD([weight], lr=0.5)
    stepper = ErrorFeedback(optimizer, [weight], strength)
    path = []
    for gradient in gradients:
        weight.grad = torch.tensor([gradient], dtype=torch.float64)
        stepper.step()
        path.append(weight.item())
    return path


def test_error_feedback_changes_nothing_while_the_gradient_is_constant() -> None:
    assert feedback_on([2.0] * 5) == [63.0, 62.0, 61.0, 60.0, 59.0]


def test_error_feedback_adds_the_change_of_the_base_optimizers_update() -> None:
    """u = 1, 2, 2, 0.5: the first step plain, then u_t + c (u_t − u_{t−1})."""
    assert feedback_on([2.0, 4.0, 4.0, 1.0]) == [63.0, 60.0, 58.0, 59.0]
    assert feedback_on([2.0, 4.0, 4.0, 1.0], strength=0.5) == [63.0, 60.5, 58.5, 58.75]


@pytest.mark.parametrize("make", [adamw, muon])
def test_error_feedback_goes_around_any_optimizer(make: Make) -> None:
    with_feedback = train(RuleChoice("double-buffered", 4, 1.0), 24, make=make)

    assert largest_difference(with_feedback.weights, delayed_by_hand(make)) == 0.0


def delayed_by_hand(make: Make) -> list[torch.Tensor]:
    """The whole model, a gradient one step late, and the correction written out."""
    stages = stage_modules()
    optimizers = [make(stage) for stage in stages]
    parameters = [parameter for stage in stages for parameter in stage.parameters()]
    before = [parameter.data.clone() for parameter in parameters]
    latest = before
    last: list[torch.Tensor] | None = None
    for group in range(6):
        for parameter, value in zip(parameters, before, strict=True):
            parameter.data = value.clone()
        for each in range(4 * group, 4 * group + 4):
            x, targets = batch(each)
            for stage in stages:
                x = stage(x)
            cross_entropy(x, targets).backward()
        for parameter, value in zip(parameters, latest, strict=True):
            assert parameter.grad is not None
            parameter.grad /= 4
            parameter.data = value.clone()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        update = [old - parameter.data for old, parameter in zip(latest, parameters, strict=True)]
        if last is not None:
            for parameter, now, then in zip(parameters, update, last, strict=True):
                parameter.data -= now - then
        last, before = update, latest
        latest = [parameter.data.clone() for parameter in parameters]
    return latest
