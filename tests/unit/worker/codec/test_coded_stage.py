"""What a coded boundary computes and sends, and that the full rank changes nothing."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from agents.protocol import WorkerCodec, WorkerModel, WorkerPlan
from agents.worker.codec.edge import Receiver, Sender
from agents.worker.codec.stage import CodedStage, message_example
from agents.worker.codec.stiefel import deviation
from agents.worker.model import cross_entropy
from agents.worker.stage import StageModule

MODEL = WorkerModel(layers=4, hidden=32, heads=4, kv_heads=2, head_dim=8, ffn=48, vocab=256, seq_len=16)
CPU = torch.device("cpu")
TOKENS = torch.randint(256, (2, 17), generator=torch.Generator().manual_seed(0))


def plan(cut: list[int], codec: WorkerCodec | None, **changes: Any) -> WorkerPlan:
    return WorkerPlan(
        **{
            "model": MODEL, "steps": 1, "micro_batch": 2, "micro_batches": 1, "dtype": "fp32", "recompute": "none",
            "layers_per_stage": cut, "window": [1] * len(cut), "learning_rate": 0.001, "seed": 3,
            "checkpoint_uri": "file:///x", "checkpoint_every": 1, "codec": codec, **changes,
        }
    )  # fmt: skip


def coded(cut: list[int], codec: WorkerCodec, **changes: Any) -> list[CodedStage]:
    told = plan(cut, codec, **changes)
    return [CodedStage(told, codec, stage, StageModule(told, stage, CPU), CPU) for stage in range(len(cut))]


def messages(stages: list[CodedStage]) -> list[tuple[torch.Tensor, ...]]:
    passed: tuple[torch.Tensor, ...] = (TOKENS[:, :-1],)
    sent = []
    for stage in stages:
        given = stage(*passed)
        passed = given if isinstance(given, tuple) else (given,)
        sent.append(passed)
    return sent


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_ids_go_as_far_as_a_coded_boundary_is_to_come_and_projections_across_it(dtype: str) -> None:
    codec = WorkerCodec(rank=5, boundaries=[1])

    sent = messages(coded([1, 1, 1, 1], codec, dtype=dtype))

    assert [[tuple(each.shape) for each in given] for given in sent] == [
        [(2, 16, 32), (2, 16)], [(2, 16, 5), (2, 16)], [(2, 16, 32)], [(2, 16, 256)],
    ]  # fmt: skip
    for stage, given in enumerate(sent[:-1]):
        examples = message_example(plan([1, 1, 1, 1], codec, dtype=dtype), stage, CPU)
        assert [(each.shape, each.dtype, each.requires_grad) for each in given] == [
            (each.shape, each.dtype, each.requires_grad) for each in examples
        ]
    assert all(torch.equal(given[1], TOKENS[:, :-1]) for given in sent[:2])


def test_a_plan_without_a_codec_sends_the_stream_alone() -> None:
    (example,) = message_example(plan([2, 2], None), 0, CPU)

    assert (tuple(example.shape), example.dtype, example.requires_grad) == ((2, 16, 32), torch.float32, True)


def test_the_full_rank_changes_neither_loss_nor_gradients() -> None:
    whole = StageModule(plan([4], None), 0, CPU)
    loss = cross_entropy(whole(TOKENS[:, :-1]), TOKENS[:, 1:])
    loss.backward()

    stages = coded([1, 2, 1], WorkerCodec(rank=32, boundaries=[0, 1]))
    (logits,) = messages(stages)[-1]
    coded_loss = cross_entropy(logits, TOKENS[:, 1:])
    coded_loss.backward()

    torch.testing.assert_close(coded_loss, loss, atol=1e-5, rtol=1e-5)
    uncoded = dict(whole.named_parameters())
    for stage in stages:
        for name, parameter in stage.module.named_parameters():
            torch.testing.assert_close(parameter.grad, uncoded[name].grad, atol=1e-5, rtol=1e-5)


def test_both_ends_compute_the_published_formulas() -> None:
    sender, receiver = Sender(MODEL, 6, 0, 2), Receiver(MODEL, 6, 0, 2)
    with torch.no_grad():
        for end in (sender, receiver):
            end.anchors.coordinates.normal_(generator=torch.Generator().manual_seed(1))
    x, ids = torch.randn(2, 16, 32), TOKENS[:, :-1]
    a = sender.projector

    z = sender(x, ids)
    lifted = receiver(z, ids)

    anchors = [end.anchors.coordinates[ids] @ end.anchors.basis for end in (sender, receiver)]
    torch.testing.assert_close(z, (x - anchors[0]) @ a)
    torch.testing.assert_close(lifted, z @ a.T + anchors[1])
    assert torch.equal(a, receiver.projector), "both ends begin with the same projector"
    assert deviation(a) < 1e-5
    assert deviation(sender.anchors.basis.T) < 1e-5


def test_another_seed_or_boundary_begins_with_another_projector_and_anchors_begin_at_zero() -> None:
    first = Sender(MODEL, 6, 0, 2)

    assert not torch.equal(first.projector, Sender(MODEL, 6, 1, 2).projector)
    assert not torch.equal(first.projector, Sender(MODEL, 6, 0, 3).projector)
    assert not first.anchors(TOKENS).any()
