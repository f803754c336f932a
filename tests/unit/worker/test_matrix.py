"""Matrices multiply in the precision they are told, and leave the gradients of their weights for later."""

from __future__ import annotations

import gc
import weakref

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


def stream(module: StageModule, seed: int, index: int = 1) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    if index == 0:
        return torch.randint(0, 256, (4, 8), generator=generator)
    dtype = torch.bfloat16 if module.half_precision else torch.float32
    return torch.randn(4, 8, 16, generator=generator).to(dtype).requires_grad_()


@pytest.mark.parametrize("index", [0, 1, 2])
@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_both_parts_of_a_backward_come_to_the_whole_one(dtype: str, recompute: str, index: int) -> None:
    """Of the first stage, one in the middle, and the last, with two micro-batches, the second parts of which come late
    and the other way round."""
    whole, parted = stage(dtype, recompute, 2, index), stage(dtype, recompute, 2, index)
    left = parted.leave_gradients()
    rests = []
    for seed in range(2):
        given, again = stream(whole, seed, index), stream(whole, seed, index)
        whole(given).float().square().mean().backward()
        parted(again).float().square().mean().backward()
        rests.append(left.take())
        if index:
            torch.testing.assert_close(given.grad, again.grad)

    blocks = [layer for name, layer in parted.named_layers() if name.startswith("layer")]
    assert all(layer.mlp.up.weight.grad is None for layer in blocks)
    for rest in reversed(rests):
        rest()
    assert left.held_bytes == 0
    for right, found in zip(whole.parameters(), parted.parameters(), strict=True):
        assert found.grad is not None
        torch.testing.assert_close(found.grad, right.grad)
        assert not found.grad.requires_grad


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_nothing_of_a_micro_batch_stays_once_its_second_part_is_done(dtype: str) -> None:
    module = stage(dtype, "none", 2)
    left = module.leave_gradients()
    inputs = []
    for seed in range(3):
        x = stream(module, seed)
        module(x).float().square().sum().backward()
        inputs += [weakref.ref(x), weakref.ref(x.grad)]
        del x
        left.take()()

    gc.collect()
    assert [alive() for alive in inputs] == [None] * 6


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
    left = LeftGradients()
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
