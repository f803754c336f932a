"""PACI goes back to its last good weights and optimizer state where numbers are not finite, counts it and tells."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor, nn

from agents.worker.executor.rules.current import Current
from agents.worker.executor.rules.rollback import GuardedUpdate, NotFiniteError
from tests.unit.worker.rules.tiny import alone


class Guarded:
    """One weight under PACI, an update a micro-batch, whose gradients a test gives."""

    def __init__(self, lr: float = 0.5, patience: int = 2, average: object = alone) -> None:
        self.stage = nn.Linear(1, 1, bias=False)
        self.stage.weight.data.fill_(4.0)
        self.optimizer = torch.optim.AdamW(self.stage.parameters(), lr=lr)
        self.told: list[str] = []
        self.update = GuardedUpdate(
            [self.stage],
            self.optimizer,
            self.optimizer,
            average,
            patience,
            self.told.append,
        )
        self.rule = Current(self.update, 1, 1)
        self._next = 0

    def learn(self, *gradients: float) -> None:
        for gradient in gradients:
            with self.rule.forward_weights(self._next):
                pass
            with self.rule.backward_weights(self._next):
                self.stage.weight.grad = torch.full((1, 1), gradient)
            self.rule.after_backward(self._next)
            self._next += 1

    def state(self) -> tuple[float, dict[str, Tensor]]:
        return self.stage.weight.item(), copy.deepcopy(dict(self.optimizer.state[self.stage.weight]))


def assert_equal(one: tuple[float, dict[str, Tensor]], other: tuple[float, dict[str, Tensor]]) -> None:
    assert one[0] == other[0]
    assert one[1].keys() == other[1].keys()
    assert all(torch.equal(one[1][name], other[1][name]) for name in one[1])


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_bad_gradient_takes_back_the_step_before_it(bad: float) -> None:
    run = Guarded()
    run.learn(1.0, 2.0)
    good = run.state()
    run.learn(3.0)

    run.learn(bad)

    assert_equal(run.state(), good)
    assert run.update.rolled_back == 1
    assert run.told == ["gradients are not finite: the update is taken back, 1 so far"]


def test_bad_gradients_that_were_in_flight_as_well_go_back_to_the_same_state() -> None:
    run = Guarded()
    run.learn(1.0, 2.0)
    good = run.state()
    run.learn(3.0, float("nan"), float("nan"))

    assert_equal(run.state(), good)
    assert run.update.rolled_back == 2


def test_weights_that_a_step_makes_infinite_lose_that_step() -> None:
    run = Guarded()
    run.learn(1.0)
    good = run.state()
    run.optimizer.param_groups[0]["lr"] = float("inf")

    run.learn(2.0)

    assert_equal(run.state(), good)
    assert run.told == ["weights are not finite: the update is taken back, 1 so far"]


def test_training_goes_on_as_if_what_was_taken_back_had_not_been() -> None:
    with_accident, without = Guarded(), Guarded()
    with_accident.learn(1.0, 2.0, float("nan"), 5.0)
    without.learn(1.0, 5.0)

    assert_equal(with_accident.state(), without.state())


def test_a_first_gradient_that_is_bad_leaves_the_weights_of_the_start() -> None:
    run = Guarded()
    run.learn(float("nan"))

    assert run.stage.weight.item() == 4.0
    assert not run.optimizer.state


def test_a_first_gradient_that_is_bad_leaves_what_a_checkpoint_put_there_after_the_rule_was_made() -> None:
    run = Guarded()
    run.stage.weight.data.fill_(7.0)
    run.learn(float("nan"))

    assert run.stage.weight.item() == 7.0


def test_a_run_that_goes_back_again_and_again_ends() -> None:
    run = Guarded(patience=2)
    run.learn(1.0, float("nan"), float("nan"), 1.0, float("nan"), float("nan"))

    with pytest.raises(NotFiniteError, match="3th update in a row: a smaller learning_rate"):
        run.learn(float("nan"))


def test_replicas_go_back_together_as_they_see_the_same_mean() -> None:
    def other_is_bad(gradients: Sequence[Tensor]) -> None:
        for gradient in gradients:
            gradient.add_(float("nan"))

    run = Guarded(average=other_is_bad)
    run.learn(1.0)

    assert run.update.rolled_back == 1
