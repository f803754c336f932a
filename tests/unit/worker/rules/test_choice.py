"""Rules are named as the planner names them; what does not fit together is refused; drift is held to its bound."""

from __future__ import annotations

from typing import Any, get_args

import pytest
import torch
from torch import nn

from agents.worker.executor.rules.choice import RuleChoice, RuleName, weight_rule
from agents.worker.executor.rules.drift import Drift, DriftError, drift_bound
from agents.worker.executor.weights import WeightRule
from scheduler.pipeline.plan import ir
from tests.unit.worker.rules.tiny import alone, order_of, stage_modules, train


def rule_of(choice: RuleChoice, micro_batches: int = 8, in_flight: int = 4, tell: Any = print) -> WeightRule:
    stage = nn.Linear(2, 2)
    return weight_rule(
        choice,
        [stage],
        torch.optim.SGD(stage.parameters(), lr=0.1),
        alone,
        micro_batches=micro_batches,
        in_flight=in_flight,
        tell=tell,
    )


def test_the_planner_and_the_worker_use_the_same_names() -> None:
    assert set(get_args(RuleName)) == {rule.value for rule in ir.WeightRule}


@pytest.mark.parametrize("name", get_args(RuleName))
def test_every_rule_starts_without_drift(name: RuleName) -> None:
    assert rule_of(RuleChoice(name), in_flight=2).drift == 0


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"name": "current", "every": 0}, "update_every is 0"),
        ({"name": "flush", "every": 4}, "leave it out"),
        ({"name": "current", "error_feedback": 1.0}, "error_feedback is 1.0 with current"),
    ],
)
def test_settings_that_do_not_suit_a_rule_are_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        RuleChoice(**settings)


def test_an_iteration_that_leaves_micro_batches_over_is_refused() -> None:
    with pytest.raises(ValueError, match="update_every is 3 with 8 micro-batches"):
        rule_of(RuleChoice("current", every=3))


@pytest.mark.parametrize(
    ("in_flight", "every", "bound"), [(8, 7, 1), (8, 8, 1), (8, 1, 7), (8, 3, 3), (1, 1, 0), (16, 7, 3)]
)
def test_drift_is_bounded_by_what_else_is_in_flight(in_flight: int, every: int, bound: int) -> None:
    assert drift_bound(in_flight, every) == bound


def test_a_stage_with_more_in_flight_than_its_cap_is_stopped() -> None:
    """The windows that run are wider than the caps that the rules were told."""
    with pytest.raises(DriftError, match="there are at most 1, so the stage had more in flight than the cap"):
        train(RuleChoice("current"), 12, window=(2, 2, 2, 1), order=order_of((4, 3, 2, 1), 12))


def test_micro_batches_go_forward_once_and_then_backward() -> None:
    drift = Drift(bound=1)
    with pytest.raises(DriftError, match="without a forward"):
        drift.backward(0)
    drift.forward(0)
    with pytest.raises(DriftError, match="twice"):
        drift.forward(0)


def test_gradients_that_no_update_has_had_are_told_at_the_end_of_the_iteration() -> None:
    rule = rule_of(RuleChoice("current", every=4))
    for micro_batch in range(2):
        with rule.forward_weights(micro_batch), rule.backward_weights(micro_batch):
            pass
        rule.after_backward(micro_batch)
    with pytest.raises(DriftError, match="2 gradients that no update has had and 0 micro-batches in flight"):
        rule.emptied()


def test_replicas_take_part_in_every_update_layer_by_layer() -> None:
    (stage,) = stage_modules([4])
    calls: list[int] = []
    rule = weight_rule(
        RuleChoice("current", every=2),
        [layer for _, layer in stage.named_layers()],
        torch.optim.SGD(stage.parameters(), lr=0.1),
        lambda gradients: calls.append(len(gradients)),
        micro_batches=4,
        in_flight=1,
    )
    for micro_batch in range(4):
        with rule.forward_weights(micro_batch), rule.backward_weights(micro_batch):
            stage(torch.zeros(1, 8, dtype=torch.int64)).sum().backward()
        rule.after_backward(micro_batch)

    layers = [len(list(layer.parameters())) for _, layer in stage.named_layers()]
    assert calls == layers * 2
