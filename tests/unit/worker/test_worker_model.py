"""The model is what its papers say, and the same wherever it is cut and whatever is computed again."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from agents.protocol import WorkerModel, WorkerPlan
from agents.worker.model import Attention, Block, RMSNorm, cross_entropy, rotary_table, rotate
from agents.worker.optimizer import make_optimizer
from agents.worker.stage import StageModule

MODEL = WorkerModel(layers=4, hidden=32, heads=4, kv_heads=2, head_dim=8, ffn=48, vocab=256, seq_len=16)
CPU = torch.device("cpu")


def plan(layers_per_stage: list[int], **changes: Any) -> WorkerPlan:
    return WorkerPlan(
        **{
            "model": MODEL, "steps": 1, "micro_batch": 2, "micro_batches": 1, "dtype": "fp32", "recompute": "none",
            "layers_per_stage": layers_per_stage, "window": [1] * len(layers_per_stage), "learning_rate": 0.001,
            "seed": 3, "checkpoint_uri": "file:///x", "checkpoint_every": 1, **changes,
        }
    )  # fmt: skip


def logits_of(stages: list[int], tokens: torch.Tensor) -> torch.Tensor:
    x = tokens
    for stage in range(len(stages)):
        x = StageModule(plan(stages), stage, CPU)(x)
    return x


def test_the_cut_changes_neither_weights_nor_logits() -> None:
    tokens = torch.randint(256, (2, 16), generator=torch.Generator().manual_seed(0))
    whole = logits_of([4], tokens)

    assert whole.shape == (2, 16, 256)
    assert torch.equal(logits_of([2, 1, 1], tokens), whole)
    assert torch.equal(logits_of([1, 3], tokens), whole)


def test_another_seed_gives_other_weights_and_every_layer_has_its_own() -> None:
    first, second = StageModule(plan([4]), 0, CPU), StageModule(plan([4], seed=4), 0, CPU)
    layers = dict(first.named_layers())

    assert not torch.equal(layers["embedding"].weight, dict(second.named_layers())["embedding"].weight)
    assert not torch.equal(layers["layer-0000"].mlp.up.weight, layers["layer-0001"].mlp.up.weight)


def test_no_position_sees_those_after_it() -> None:
    tokens = torch.zeros(1, 16, dtype=torch.int64)
    changed = tokens.clone()
    changed[0, 9] = 77

    before, after = logits_of([4], tokens), logits_of([4], changed)

    assert torch.equal(before[0, :9], after[0, :9])
    assert not torch.allclose(before[0, 9:], after[0, 9:])


@pytest.mark.parametrize("recompute", ["selective", "full"])
def test_recomputing_changes_no_loss_and_no_gradient(recompute: str) -> None:
    tokens = torch.randint(256, (2, 17), generator=torch.Generator().manual_seed(1))
    results = []
    for how in ("none", recompute):
        module = StageModule(plan([4], recompute=how), 0, CPU)
        loss = cross_entropy(module(tokens[:, :-1]), tokens[:, 1:])
        loss.backward()
        results.append((loss.item(), [parameter.grad for parameter in module.parameters()]))

    assert results[0][0] == results[1][0]
    for kept, recomputed in zip(results[0][1], results[1][1], strict=True):
        torch.testing.assert_close(kept, recomputed)


@pytest.mark.parametrize(("recompute", "kept"), [("full", "fewest"), ("selective", "fewer")])
def test_recomputing_keeps_less_for_the_backward_pass(recompute: str, kept: str) -> None:
    def bytes_kept(how: str) -> int:
        sizes: dict[int, int] = {}

        def count(tensor: torch.Tensor) -> torch.Tensor:
            storage = tensor.untyped_storage()
            sizes[storage.data_ptr()] = storage.nbytes()
            return tensor

        block = Block(MODEL, how, torch.float32)  # type: ignore[arg-type]
        with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
            block(torch.randn(2, 16, 32, requires_grad=True))
        return sum(sizes.values())

    assert bytes_kept("full") < bytes_kept("none")
    if kept == "fewest":
        assert bytes_kept("full") == 2 * 16 * 32 * 4, "its input alone"
    else:
        assert bytes_kept("full") < bytes_kept(recompute) < bytes_kept("none")


def test_grouped_queries_are_full_heads_with_shared_keys() -> None:
    grouped = Attention(MODEL, "none", torch.float32)
    full = Attention(MODEL.model_copy(update={"kv_heads": 4}), "none", torch.float32)
    full.query.load_state_dict(grouped.query.state_dict())
    full.output.load_state_dict(grouped.output.state_dict())
    with torch.no_grad():
        for wide, narrow in ((full.key, grouped.key), (full.value, grouped.value)):
            wide.weight.copy_(narrow.weight.view(2, 8, 32).repeat_interleave(2, dim=0).reshape(32, 32))
    x, table = torch.randn(2, 16, 32), rotary_table(16, 8)

    torch.testing.assert_close(grouped(x, *table), full(x, *table))


def test_rotary_scores_depend_on_the_distance_alone() -> None:
    cos, sin = rotary_table(16, 8)
    query, key = torch.randn(8), torch.randn(8)
    turned_query = rotate(query.expand(1, 1, 16, 8), cos, sin)[0, 0]
    turned_key = rotate(key.expand(1, 1, 16, 8), cos, sin)[0, 0]

    assert torch.equal(turned_query[0], query)
    torch.testing.assert_close(turned_query[5] @ turned_key[2], turned_query[13] @ turned_key[10])
    assert not torch.isclose(turned_query[5] @ turned_key[2], turned_query[5] @ turned_key[4])


def test_the_norm_gives_unit_mean_square_in_the_dtype_of_its_input() -> None:
    x = 7 * torch.randn(3, 32)

    torch.testing.assert_close(RMSNorm(32)(x).square().mean(-1), torch.ones(3), rtol=1e-4, atol=1e-4)
    assert RMSNorm(32)(x.bfloat16()).dtype is torch.bfloat16


def test_the_stream_between_stages_is_of_the_plans_dtype_while_weights_stay_fp32() -> None:
    module = StageModule(plan([2, 2], dtype="bf16"), 0, CPU)

    assert module(torch.zeros(2, 16, dtype=torch.int64)).dtype is torch.bfloat16
    assert {parameter.dtype for parameter in module.parameters()} == {torch.float32}


def test_norms_do_not_decay() -> None:
    groups = make_optimizer(StageModule(plan([4]), 0, CPU), 0.001).param_groups

    assert [(group["weight_decay"] > 0, {p.dim() for p in group["params"]}) for group in groups] == [
        (True, {2}),
        (False, {1}),
    ]
