"""What a backward in two parts takes against a whole one, on the built-in worker's own layers."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

import pytest

from scheduler.pipeline.plan.stage_costs import SPLITTING

TIMES = 8


def _cpu_ms(work: Callable[[], object]) -> float:
    begin = time.process_time()
    work()
    return (time.process_time() - begin) * 1e3


@pytest.mark.perf
@pytest.mark.parametrize(
    ("hidden", "seq_len", "recompute"),
    [(192, 128, "none"), (384, 256, "none"), (384, 256, "selective"), (768, 256, "selective")],
)
def test_a_split_backward_against_a_whole_one(hidden: int, seq_len: int, recompute: str) -> None:
    import torch

    from agents.protocol import WorkerModel
    from agents.worker.left import LeftGradients
    from agents.worker.matrix import Matrix
    from agents.worker.model import Block

    torch.set_num_threads(1)
    model = WorkerModel(
        layers=2, hidden=hidden, heads=6, kv_heads=6, head_dim=hidden // 6, ffn=8 * hidden // 3, vocab=256,
        seq_len=seq_len,
    )  # fmt: skip
    whole_stage, stage = (
        torch.nn.Sequential(*(Block(model, recompute, torch.float32) for _ in range(2))) for _ in range(2)
    )
    stage.load_state_dict(whole_stage.state_dict())
    left = LeftGradients()
    for module in stage.modules():
        if isinstance(module, Matrix):
            module.left = left
    given = torch.randn(4, seq_len, hidden, requires_grad=True)
    taken: dict[str, list[float]] = {"F": [], "B": [], "I": [], "W": []}

    def timed(kind: str, work: Callable[[], object]) -> None:
        taken[kind].append(_cpu_ms(work))

    gradient = torch.randn(4, seq_len, hidden)
    gradients = []
    for _ in range(TIMES):
        for computes in (whole_stage, stage):
            computes.zero_grad()
            given.grad = None
            made: list[torch.Tensor] = []
            timed("F", lambda made=made, computes=computes: made.append(computes(given)))
            timed("B" if computes is whole_stage else "I", lambda made=made: made[0].backward(gradient))
            if computes is stage:
                timed("W", left.take())
            gradients.append(torch.cat([each.grad.flatten() for each in computes.parameters()]))
    torch.testing.assert_close(gradients[-1], gradients[-2])
    forward, whole, of_inputs, of_weights = (median(taken[kind]) for kind in "FBIW")
    split = of_inputs + of_weights
    print(
        f"\nhidden {hidden}, {seq_len} tokens, recompute {recompute}: F {forward:.1f}, B {whole:.1f}, "
        f"I {of_inputs:.1f}, W {of_weights:.1f} ms of CPU; (I + W) / B {split / whole:.2f} "
        f"(planned with {1 + SPLITTING:.2f}), W / B {of_weights / whole:.2f}"
    )
