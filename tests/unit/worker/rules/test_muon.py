"""Muon orthogonalises matrices and leaves the rest to AdamW; checkpoints hold the state of either."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from agents.worker.executor.rules.feedback import ErrorFeedback
from agents.worker.model import cross_entropy
from agents.worker.muon import orthogonalised
from agents.worker.optimizer import layer_tensors, make_muon, make_optimizer, restore_layer
from agents.worker.stage import StageModule
from tests.unit.worker.rules.tiny import batch, stage_modules


@pytest.mark.parametrize("shape", [(8, 8), (6, 20), (20, 6)])
def test_singular_values_come_near_one(shape: tuple[int, int]) -> None:
    matrix = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    u, _, v = torch.linalg.svd(matrix, full_matrices=False)

    found = orthogonalised(matrix)

    values = torch.linalg.svdvals(found)
    assert 0.6 < values.min() <= values.max() < 1.3
    assert float((u @ v * found).sum()) > 0.95 * float((u @ v).norm() * found.norm())


def learn(
    stage: StageModule, optimizer: torch.optim.Optimizer, stepper: object, first: int, count: int
) -> None:
    for each in range(first, first + count):
        inputs, targets = batch(each)
        cross_entropy(stage(inputs), targets).backward()
        stepper.step()
        optimizer.zero_grad()


def test_embedding_head_and_norms_are_adamws() -> None:
    (muon_stage,), (adam_stage,) = stage_modules([4]), stage_modules([4])
    for stage, optimizer in (
        (muon_stage, make_muon(muon_stage.named_layers(), 0.01)),
        (adam_stage, make_optimizer(adam_stage, 0.01)),
    ):
        learn(stage, optimizer, optimizer, 0, 1)

    same = {
        name: torch.equal(mine, theirs)
        for (name, mine), theirs in zip(muon_stage.named_parameters(), adam_stage.parameters(), strict=True)
    }
    assert {name.rpartition(".")[0].rpartition(".")[2] for name, equal in same.items() if not equal} == {
        "query", "key", "value", "output", "gate", "up", "down",
    }  # fmt: skip


def test_a_learning_rate_is_that_of_the_group() -> None:
    """Rates that change, as a schedule's, reach Muon and its AdamW alike."""
    (stage,) = stage_modules([4])
    optimizer = make_muon(stage.named_layers(), 0.01)
    before = [parameter.data.clone() for parameter in stage.parameters()]
    for group in optimizer.param_groups:
        group["lr"] = 0.0
    learn(stage, optimizer, optimizer, 0, 1)

    assert all(torch.equal(old, new.data) for old, new in zip(before, stage.parameters(), strict=True))


@pytest.mark.parametrize("kind", ["muon", "adamw"])
def test_a_run_goes_on_exactly_from_what_a_checkpoint_holds(kind: str) -> None:
    def fresh() -> tuple[StageModule, torch.optim.Optimizer, ErrorFeedback]:
        (stage,) = stage_modules([4])
        optimizer: torch.optim.Optimizer = (
            make_muon(stage.named_layers(), 0.01) if kind == "muon" else make_optimizer(stage, 0.01)
        )
        return stage, optimizer, ErrorFeedback(optimizer, list(stage.parameters()))

    stage, optimizer, stepper = fresh()
    learn(stage, optimizer, stepper, 0, 3)
    kept: dict[str, dict[str, Tensor]] = {
        name: {key: value.detach().clone() for key, value in layer_tensors(optimizer, layer).items()}
        for name, layer in stage.named_layers()
    }
    learn(stage, optimizer, stepper, 3, 2)

    other, its_optimizer, its_stepper = fresh()
    for name, layer in other.named_layers():
        restore_layer(its_optimizer, layer, kept[name], 3)
    learn(other, its_optimizer, its_stepper, 3, 2)

    for one, two in zip(stage.parameters(), other.parameters(), strict=True):
        assert torch.equal(one, two)


def test_the_checkpoint_of_another_optimizer_is_not_enough() -> None:
    (stage,) = stage_modules([4])
    optimizer = make_optimizer(stage, 0.01)
    learn(stage, optimizer, optimizer, 0, 1)
    layer = dict(stage.named_layers())["layer-0000"]
    tensors = layer_tensors(optimizer, layer)

    with pytest.raises(KeyError, match="momentum_buffer"):
        restore_layer(make_muon(stage.named_layers(), 0.01), layer, tensors, 1)
