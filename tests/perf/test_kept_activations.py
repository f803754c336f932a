"""What the built-in worker keeps of a micro-batch is what the planner takes its layers to keep."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from agents.protocol import WorkerModel, WorkerPlan
from agents.worker.memory import ActivationMeter
from agents.worker.optimizer import make_optimizer
from agents.worker.stage import StageModule, stream_dtype
from scheduler.activations import builtin_layer_bytes, builtin_pending_bytes
from scheduler.job import ModelShape, Recompute

pytestmark = pytest.mark.perf

SHAPES = {"8 heads, 8 of keys": (512, 8, 8, 1408, 512), "12 heads, 4 of keys": (768, 12, 4, 2048, 512)}
"""Hidden, heads, key-value heads, width of the MLP, tokens."""
WITHIN = 0.01


def plan_of(model: WorkerModel, dtype: str, recompute: Recompute, layers: int) -> WorkerPlan:
    """Its stage 1 has so many layers."""
    return WorkerPlan(
        model=model, steps=1, micro_batch=1, micro_batches=1, dtype=dtype, recompute=recompute.value,
        layers_per_stage=[1, layers, 1], window=[1, 1, 1], learning_rate=0.01, seed=0,
        checkpoint_uri="file:///x", checkpoint_every=1,
    )  # fmt: skip


def kept_bytes(plan: WorkerPlan) -> int:
    """For a micro-batch of one sequence, by the stage."""
    stage = StageModule(plan, 1, torch.device("cpu"))
    stage.share_copies(make_optimizer(stage, 0.01))
    meter = ActivationMeter(stage, has_loss=False)
    stage(stream(plan))
    return meter.micro_batch_bytes


def stream(plan: WorkerPlan) -> Tensor:
    shape = (1, plan.model.seq_len, plan.model.hidden)
    return torch.zeros(shape, dtype=stream_dtype(plan), requires_grad=True)


def allocated_by_parts(plan: WorkerPlan) -> tuple[int, int]:
    """What the stage holds more for a micro-batch after its forward, and again after the gradient of its input."""
    stage, inputs = StageModule(plan, 1, torch.device("cpu")), stream(plan)
    stage.share_copies(make_optimizer(stage, 0.01))
    left = stage.leave_gradients()
    stage(inputs)  # makes the copies
    with profiled() as forward:
        outputs = [stage(inputs)]
    with profiled() as input_gradient:
        torch.autograd.backward(outputs, [torch.zeros_like(inputs)])
        outputs.clear()
    assert left.held_bytes
    return allocated(forward), allocated(input_gradient)


def profiled() -> profile:
    return profile(activities=[ProfilerActivity.CPU], profile_memory=True, acc_events=True)


def allocated(found: profile) -> int:
    """What was allocated and not freed, bytes."""
    return sum(each.self_cpu_memory_usage for each in found.key_averages())


def of_shape(shape: str) -> dict[str, int]:
    hidden, heads, kv_heads, ffn, tokens = SHAPES[shape]
    return {
        "layers": 4, "vocab": 256, "seq_len": tokens, "hidden": hidden, "heads": heads, "kv_heads": kv_heads,
        "head_dim": hidden // heads, "ffn": ffn,
    }  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES)
def test_a_layer_keeps_what_is_planned(shape: str) -> None:
    model = WorkerModel(**of_shape(shape))
    planned_for = ModelShape("x", gated_mlp=True, **of_shape(shape))
    for dtype, element_bytes in (("bf16", 2), ("fp32", 4)):
        for recompute in Recompute:
            two, one = (kept_bytes(plan_of(model, dtype, recompute, layers)) for layers in (2, 1))
            kept = two - one
            planned = builtin_layer_bytes(planned_for, 1, recompute, element_bytes)
            print(
                f"\n{shape:20} {dtype} {recompute.value:9} kept {kept / 1e6:6.2f} MB a layer, "
                f"planned {planned / 1e6:6.2f} MB: {kept / planned:.3f}",
                end="",
            )
            assert kept == pytest.approx(planned, rel=WITHIN)


@pytest.mark.parametrize("shape", SHAPES)
def test_between_the_parts_of_its_backward_a_layer_keeps_what_is_planned(shape: str) -> None:
    """By what is allocated, whoever holds it."""
    model = WorkerModel(**of_shape(shape))
    planned_for = ModelShape("x", gated_mlp=True, **of_shape(shape))
    for dtype, element_bytes in (("bf16", 2), ("fp32", 4)):
        for recompute in (Recompute.NONE, Recompute.SELECTIVE):
            two, one = (allocated_by_parts(plan_of(model, dtype, recompute, layers)) for layers in (2, 1))
            kept, added = (more - less for more, less in zip(two, one, strict=True))
            left = kept + added
            planned = builtin_pending_bytes(planned_for, 1, recompute, element_bytes)
            print(
                f"\n{shape:20} {dtype} {recompute.value:9} kept {kept / 1e6:6.2f} MB a layer, between the parts of its "
                f"backward {left / 1e6:6.2f}, planned {planned / 1e6:6.2f} MB: {left / planned:.3f}",
                end="",
            )
            assert left == pytest.approx(planned, rel=WITHIN)
