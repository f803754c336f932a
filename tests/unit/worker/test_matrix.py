"""Matrices multiply in the precision they are told, and leave the gradients of their weights for later."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from agents.protocol import WorkerModel, WorkerPlan
from agents.worker.executor.rules.versions import move, standing, version_of
from agents.worker.left import LeftGradients
from agents.worker.matrix import Matrix
from agents.worker.stage import StageModule
from scheduler.activations import builtin_pending_bytes
from scheduler.job import ModelShape, Recompute

CPU = torch.device("cpu")
SHAPE = {
    "layers": 8,
    "hidden": 16,
    "heads": 4,
    "kv_heads": 2,
    "head_dim": 8,
    "ffn": 24,
    "vocab": 256,
    "seq_len": 8,
}


def stage(dtype: str, recompute: str, layers: int, index: int = 1) -> StageModule:
    plan = WorkerPlan(
        model=WorkerModel(**SHAPE), steps=1, micro_batch=4, micro_batches=1, dtype=dtype, recompute=recompute,
        layers_per_stage=[1, layers, 1], window=[1, 1, 1], learning_rate=0.01, seed=0, checkpoint_uri="file:///x",
        checkpoint_every=1,
    )  # fmt: skip
    return StageModule(plan, index, CPU)


def stream(module: StageModule, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    dtype = torch.bfloat16 if module.half_precision else torch.float32
    return torch.randn(4, 8, 16, generator=generator).to(dtype).requires_grad_()


@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_both_parts_of_a_backward_come_to_the_whole_one(dtype: str, recompute: str) -> None:
    """Of two micro-batches, the second parts of which come late and the other way round."""
    whole, parted = stage(dtype, recompute, 2), stage(dtype, recompute, 2)
    left = parted.leave_gradients()
    inputs = [stream(whole, seed) for seed in range(2)]
    again = [stream(whole, seed) for seed in range(2)]
    for x in inputs:
        whole(x).float().square().sum().backward()
    rests = []
    for x in again:
        with left.leaving_others():
            parted(x).float().square().sum().backward()
        rests.append(left.take())

    assert all(parameter.grad is None for parameter in parted.parameters())
    for rest in reversed(rests):
        rest()
    assert left.held_bytes == 0
    for x, other in zip(inputs, again, strict=True):
        assert x.grad is not None
        torch.testing.assert_close(x.grad, other.grad)
    for right, found in zip(whole.parameters(), parted.parameters(), strict=True):
        torch.testing.assert_close(found.grad, right.grad)


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_an_embedding_leaves_the_rows_that_were_asked_for(dtype: str) -> None:
    whole, parted = stage(dtype, "none", 1, index=0), stage(dtype, "none", 1, index=0)
    left = parted.leave_gradients()
    tokens = torch.randint(0, 9, (4, 8), generator=torch.Generator().manual_seed(0))
    for _ in range(2):
        whole(tokens).float().square().sum().backward()
        parted(tokens).float().square().sum().backward()
    left.take()()

    for right, found in zip(whole.parameters(), parted.parameters(), strict=True):
        torch.testing.assert_close(found.grad, right.grad)


@pytest.mark.parametrize("recompute", ["none", "selective"])
@pytest.mark.parametrize(("dtype", "element_bytes"), [("bf16", 2), ("fp32", 4)])
def test_a_layer_leaves_what_the_planner_counts(recompute: str, dtype: str, element_bytes: int) -> None:
    left = []
    for layers in (1, 2):
        module = stage(dtype, recompute, layers)
        products = module.leave_gradients()
        x = stream(module, 0)
        module(x).backward(torch.ones_like(x))
        left.append(products.held_bytes)

    planned_for = ModelShape("x", **SHAPE, gated_mlp=True)
    assert left[1] - left[0] == builtin_pending_bytes(planned_for, 4, Recompute(recompute), element_bytes)


def test_a_copy_that_is_shared_is_made_anew_when_the_weights_have_changed() -> None:
    matrix, x = Matrix(2, 2, torch.bfloat16), torch.ones(1, 2)
    matrix.share_copy()
    first = matrix(x)
    with torch.no_grad():
        matrix.weight.mul_(2)

    assert torch.equal(matrix(x), first)
    matrix.forget_copy()
    assert torch.equal(matrix(x), 2 * first)


@pytest.mark.parametrize("leaves", [False, True])
def test_a_backward_multiplies_with_the_weights_of_its_forward_that_moved_away(leaves: bool) -> None:
    """As torch's linear layers do: they keep the storage, not the parameter."""
    torch.manual_seed(0)
    matrix, x = Matrix(3, 3, torch.float32), torch.randn(2, 3, requires_grad=True)
    left = LeftGradients([])
    if leaves:
        matrix.left = left
    parameters: list[nn.Parameter] = [matrix.weight]
    forward = version_of(parameters)
    output = matrix(x)
    move(parameters, [tensor * 2 for tensor in forward])
    with standing(parameters, forward):
        output.sum().backward()
    left.take()()

    assert x.grad is not None
    torch.testing.assert_close(x.grad, torch.ones(2, 3) @ forward[0])
    assert matrix.weight.grad is not None
    torch.testing.assert_close(matrix.weight.grad, torch.ones(3, 2) @ x.detach())
