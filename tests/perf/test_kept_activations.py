"""What the built-in worker keeps of a micro-batch, beside what the planner takes a layer to keep."""

from __future__ import annotations

import pytest
import torch

from agents.protocol import WorkerModel, WorkerPlan
from agents.worker.half_precision import forget_copies
from agents.worker.memory import ActivationMeter
from agents.worker.optimizer import make_optimizer
from agents.worker.stage import StageModule
from scheduler.job import ModelShape, Recompute
from scheduler.profile import layer_activation_bytes

pytestmark = pytest.mark.perf

SHAPES = {"8 heads, 8 of keys": (512, 8, 8, 1408, 512), "12 heads, 4 of keys": (768, 12, 4, 2048, 512)}
"""Hidden, heads, key-value heads, width of the MLP, tokens."""
WITHIN = {Recompute.NONE: (0.5, 0.7), Recompute.SELECTIVE: (1.1, 1.5), Recompute.FULL: (1.0, 1.0)}


def kept_bytes(model: WorkerModel, dtype: str, recompute: Recompute, layers: int) -> int:
    """By a stage of so many layers, for a micro-batch of one sequence."""
    plan = WorkerPlan(
        model=model, steps=1, micro_batch=1, micro_batches=1, dtype=dtype, recompute=recompute.value,
        layers_per_stage=[1, layers, 1], window=[1, 1, 1], learning_rate=0.01, seed=0,
        checkpoint_uri="file:///x", checkpoint_every=1,
    )  # fmt: skip
    stage = StageModule(plan, 1, torch.device("cpu"))
    halved = dtype == "bf16"
    if halved:
        stage.share_copies(make_optimizer(stage, 0.01))
    meter = ActivationMeter(stage, has_loss=False, shares_copies=halved)
    of_type = torch.bfloat16 if halved else torch.float32
    stage(torch.zeros(1, model.seq_len, model.hidden, dtype=of_type, requires_grad=True))
    forget_copies()
    return meter.micro_batch_bytes


@pytest.mark.parametrize("shape", SHAPES)
def test_a_layer_keeps_about_what_is_planned(shape: str) -> None:
    hidden, heads, kv_heads, ffn, tokens = SHAPES[shape]
    wide = {"hidden": hidden, "heads": heads, "kv_heads": kv_heads, "head_dim": hidden // heads, "ffn": ffn}
    model = WorkerModel(layers=4, vocab=256, seq_len=tokens, **wide)
    planned_for = ModelShape("x", 4, gated_mlp=True, vocab=256, seq_len=tokens, **wide)
    for dtype, element_bytes in (("bf16", 2), ("fp32", 4)):
        for recompute in Recompute:
            kept = kept_bytes(model, dtype, recompute, 2) - kept_bytes(model, dtype, recompute, 1)
            planned = layer_activation_bytes(planned_for, 1, 1, recompute, element_bytes)
            print(
                f"\n{shape:20} {dtype} {recompute.value:9} kept {kept / 1e6:6.2f} MB a layer, "
                f"planned {planned / 1e6:6.2f} MB: {kept / planned:.2f}",
                end="",
            )
            low, high = WITHIN[recompute]
            assert low <= kept / planned <= high
