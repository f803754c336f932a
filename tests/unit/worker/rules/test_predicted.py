"""A prediction is exact where nothing changes, and is made in place, for as many updates as will really come."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor, nn

from agents.worker.executor.rank_plan import windowed
from agents.worker.executor.rules.choice import RuleChoice
from agents.worker.executor.rules.predicted import Predicted
from agents.worker.executor.rules.prediction import predict
from agents.worker.executor.rules.update import Update
from agents.worker.muon import Muon, direction
from tests.unit.worker.rules.tiny import alone, largest_difference, train

GRADIENT = torch.tensor([[0.5, -2.0], [0.25, 1.0]], dtype=torch.float64)


class Slope(nn.Module):
    """Weights whose gradient is always the same."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([[8.0, 4.0], [-2.0, 1.0]], dtype=torch.float64))


def sgd(parameters: Sequence[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.25)


def adamw(parameters: Sequence[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=0.01, weight_decay=0.1)


def muon(parameters: Sequence[nn.Parameter]) -> torch.optim.Optimizer:
    vector = nn.Parameter(torch.ones(1, dtype=torch.float64))
    return Muon(list(parameters), [{"params": [vector]}], 0.01, 0.1, (0.9, 0.95))


def heavy_ball(parameters: Sequence[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.25, momentum=0.5, dampening=0.5)


def pairs_of(
    make: object, in_flight: int, micro_batches: int, every: int = 1
) -> tuple[list[tuple[Tensor, Tensor]], Predicted]:
    """For each micro-batch the weights that its forward saw and those at its backward."""
    stage = Slope()
    optimizer = make([stage.weight])
    rule = Predicted(Update([stage], optimizer, optimizer, alone), every, in_flight)
    seen: dict[int, Tensor] = {}
    pairs = []
    for _, op, micro_batch in windowed(0, in_flight, micro_batches):
        if op == "F":
            with rule.forward_weights(micro_batch):
                seen[micro_batch] = stage.weight.data.clone()
            continue
        with rule.backward_weights(micro_batch):
            pairs.append((seen[micro_batch], stage.weight.data.clone()))
            stage.weight.grad = GRADIENT.clone() + (0 if stage.weight.grad is None else stage.weight.grad)
        rule.after_backward(micro_batch)
    return pairs, rule


@pytest.mark.parametrize(("every", "in_flight"), [(1, 2), (1, 4), (2, 4), (4, 4)])
def test_sgd_with_a_constant_gradient_is_predicted_exactly(every: int, in_flight: int) -> None:
    pairs, rule = pairs_of(sgd, in_flight, 12, every)

    assert rule.drift == -(-(in_flight - 1) // every)
    for predicted, actual in pairs[in_flight:]:
        assert torch.equal(predicted, actual)


@pytest.mark.parametrize("make", [adamw, muon])
def test_adamw_and_muon_with_a_constant_gradient_are_predicted_to_rounding(make: object) -> None:
    pairs, _ = pairs_of(make, 4, 12)

    for predicted, actual in pairs[4:]:
        torch.testing.assert_close(predicted, actual, rtol=0, atol=1e-8)
        assert not torch.allclose(predicted, actual + 0.005)


def test_momentum_is_predicted_exactly_once_it_has_settled() -> None:
    pairs, _ = pairs_of(heavy_ball, 4, 60)

    torch.testing.assert_close(*pairs[-1], rtol=0, atol=1e-9)


def test_the_steps_ahead_are_d_minus_rank_minus_1_and_fewer_while_the_pipeline_fills() -> None:
    """With a constant gradient a forward is s × lr × gradient ahead of what its stage has."""
    for rank, in_flight in enumerate((4, 3, 2, 1)):
        stage = Slope()
        optimizer = sgd([stage.weight])
        rule = Predicted(Update([stage], optimizer, optimizer, alone), 1, in_flight)
        ahead = []
        for _, op, micro_batch in windowed(0, in_flight, 8):
            if op == "F":
                latest = stage.weight.data.clone()
                with rule.forward_weights(micro_batch):
                    travelled = (latest - stage.weight.data) / (0.25 * GRADIENT)
                    ahead.append(round(float(travelled.mean())))
                continue
            with rule.backward_weights(micro_batch):
                stage.weight.grad = GRADIENT.clone()
            rule.after_backward(micro_batch)
        # Before the first update nothing is known of what comes.
        assert ahead == [0] * in_flight + [4 - rank - 1] * (8 - in_flight)


def test_the_last_stage_sees_its_weights_as_they_are() -> None:
    pairs, rule = pairs_of(adamw, 1, 6)

    assert rule.drift == 0
    assert all(torch.equal(seen, actual) for seen, actual in pairs)


def test_predicted_weights_stand_in_the_same_storage_and_go_away_after_a_failure() -> None:
    stage = Slope()
    optimizer = sgd([stage.weight])
    rule = Predicted(Update([stage], optimizer, optimizer, alone), 1, 3)
    stage.weight.grad = GRADIENT.clone()
    with rule.forward_weights(0):
        pass
    home, before = stage.weight.data_ptr(), stage.weight.data.clone()

    def failing_forward() -> None:
        with rule.forward_weights(1):
            assert stage.weight.data_ptr() == home
            assert not torch.equal(stage.weight.data, before)
            raise OverflowError

    with pytest.raises(OverflowError):
        failing_forward()

    assert torch.equal(stage.weight.data, before)


def test_muon_goes_on_in_the_direction_of_its_momentum() -> None:
    weight = Slope().weight
    optimizer = muon([weight])
    weight.grad = GRADIENT.clone()
    optimizer.step()
    latest = weight.data.clone()

    predict(optimizer, 1)

    step = direction(optimizer.state[weight]["momentum_buffer"], GRADIENT)
    torch.testing.assert_close(weight.data, latest * (1 - 0.01 * 0.1) - 0.01 * step)


def test_an_optimizer_without_a_prediction_is_named() -> None:
    weight = Slope().weight
    with pytest.raises(NotImplementedError, match="not Adagrad"):
        predict(torch.optim.Adagrad([weight]), 1)


def test_predicting_changes_what_a_pipeline_learns_but_not_its_last_stage_rule() -> None:
    plain = train(RuleChoice("current"), 24)
    predicted = train(RuleChoice("predicted"), 24)

    assert [rule.drift for rule in predicted.rules] == [3, 2, 1, 0]
    assert largest_difference(plain.weights, predicted.weights) > 1e-4
