"""What an out-of-memory end tells is computed from what a stage holds."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from agents.protocol import WorkerModel, WorkerOrder, WorkerPlan
from agents.worker.causes import Cause, WorkerEndError
from agents.worker.executor.from_wire import rank_plan
from agents.worker.failures import memory_accounted
from agents.worker.memory import ActivationMeter, GpuMemory, StageFigures, account, figures
from agents.worker.optimizer import make_muon, make_optimizer
from agents.worker.stage import StageModule
from scheduler.activations import builtin_layer_bytes
from scheduler.job import ModelShape, Recompute

MB = 1_000_000
PLAN = WorkerPlan(
    model=WorkerModel(layers=8, hidden=16, heads=2, kv_heads=2, head_dim=8, ffn=16, vocab=256, seq_len=8),
    steps=1, micro_batch=4, micro_batches=8, dtype="fp32", recompute="none", layers_per_stage=[4, 4],
    window=[6, 1], learning_rate=0.01, seed=0, checkpoint_uri="file:///x", checkpoint_every=1,
)  # fmt: skip
HELD = StageFigures(
    stage=0, first_layer=0, layers=4, weights=10 * MB, gradients=10 * MB, optimizer=20 * MB,
    optimizer_needed=20 * MB, copies=0, in_flight=3, window=6, micro_batch_bytes=10 * MB, left=0, most=6,
)  # fmt: skip


class Squares(nn.Module):
    """Keeps its input [4, 8] for the weight, and its output, of 4 bytes an element each."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.linear(x))


@pytest.mark.parametrize(("has_loss", "kept"), [(False, 2 * 4 * 8 * 4), (True, 3 * 4 * 8 * 4)])
def test_what_a_micro_batch_keeps_is_measured_without_the_weights(has_loss: bool, kept: int) -> None:
    module = Squares()
    meter = ActivationMeter(module, has_loss=has_loss)
    outputs = [module(torch.ones(4, 8)) for _ in range(3)]
    assert meter.micro_batch_bytes == kept
    assert meter.in_flight == 3

    outputs[0].sum().backward()

    assert meter.in_flight == 2


def test_measuring_changes_no_gradient() -> None:
    torch.manual_seed(0)
    plain, x = Squares(), torch.randn(4, 8)
    metered = Squares()
    metered.load_state_dict(plain.state_dict())
    ActivationMeter(metered, has_loss=False)
    for module in (plain, metered):
        module(x).square().sum().backward()

    assert torch.equal(plain.linear.weight.grad, metered.linear.weight.grad)  # type: ignore[arg-type]


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_the_figures_are_those_of_the_tensors(optimizer: str) -> None:
    module = StageModule(PLAN, 0, torch.device("cpu"))
    made = make_muon(module.named_layers(), 0.1) if optimizer == "muon" else make_optimizer(module, 0.1)
    meter = ActivationMeter(module, has_loss=False)
    module(torch.zeros(1, 8, dtype=torch.int64)).sum().backward()
    before = figures(PLAN, 0, rank_plan(PLAN, 0, 2), module, made, meter, None)
    made.step()
    after = figures(PLAN, 0, rank_plan(PLAN, 0, 2), module, made, meter, None)

    weights = 4 * sum(parameter.numel() for parameter in module.parameters())
    assert before.weights == before.gradients == weights
    assert before.optimizer == 0
    steps = 4 * sum("step" in state for state in made.state.values())
    assert after.optimizer == before.optimizer_needed + steps, "beside the moments AdamW counts its steps"
    assert (before.layers, before.first_layer, before.window) == (4, 0, 6)


@pytest.mark.parametrize("recompute", ["none", "selective"])
@pytest.mark.parametrize("shares", [False, True])
def test_micro_batches_in_flight_share_the_copies_of_weights_or_hold_their_own(
    recompute: str, shares: bool
) -> None:
    module = half_precision_stage(recompute, shares)
    meter = ActivationMeter(module, has_loss=False)
    stream = torch.zeros(4, 8, 16, dtype=torch.bfloat16, requires_grad=True)
    module(stream)
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with saved_tensors_hooks(keep, lambda tensor: tensor):
        outputs = [module(stream) for _ in range(3)]
    for output in outputs:
        keep(output)

    for held in (*module.parameters(), *module.buffers()):
        kept.pop(held.untyped_storage().data_ptr(), None)
    matrices = sum(parameter.numel() for parameter in module.parameters() if parameter.dim() == 2)
    assert module.shared_copies_bytes == (2 * matrices if shares else 0)
    assert sum(kept.values()) == 3 * meter.micro_batch_bytes + module.shared_copies_bytes


@pytest.mark.parametrize("recompute", list(Recompute))
@pytest.mark.parametrize(("dtype", "element_bytes"), [("bf16", 2), ("fp32", 4)])
def test_a_layer_keeps_what_the_planner_counts(recompute: Recompute, dtype: str, element_bytes: int) -> None:
    """With two heads a key, and heads and an MLP that are not as wide as the stream."""
    shape = {"layers": 8, "hidden": 16, "heads": 4, "kv_heads": 2, "head_dim": 8, "ffn": 24, "vocab": 256}
    kept = []
    for layers in (1, 2):
        plan = PLAN.model_copy(
            update={
                "model": WorkerModel(**shape, seq_len=8), "dtype": dtype, "recompute": recompute.value,
                "layers_per_stage": [1, layers, 1],
            }
        )  # fmt: skip
        module = StageModule(plan, 1, torch.device("cpu"))
        shares = dtype == "bf16"
        if shares:
            module.share_copies(make_optimizer(module, 0.1))
        meter = ActivationMeter(module, has_loss=False)
        module(torch.zeros(4, 8, 16, dtype=torch.bfloat16 if shares else torch.float32, requires_grad=True))
        kept.append(meter.micro_batch_bytes)

    planned_for = ModelShape("x", **shape, seq_len=8, gated_mlp=True)
    assert kept[1] - kept[0] == builtin_layer_bytes(planned_for, 4, recompute, element_bytes)


@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
def test_sharing_copies_changes_nothing_that_is_learned(recompute: str) -> None:
    learned = []
    for shares in (False, True):
        module = half_precision_stage(recompute, shares=False)
        optimizer = make_optimizer(module, 0.1)
        if shares:
            module.share_copies(optimizer)
        generator = torch.Generator().manual_seed(1)
        for _ in range(3):
            losses = []
            for _ in range(3):
                stream = torch.randn(4, 8, 16, generator=generator).bfloat16().requires_grad_()
                losses.append(module(stream).float().square().mean())
                if len(losses) > 1:
                    losses[-2].backward()
            losses[-1].backward()
            optimizer.step()
            optimizer.zero_grad()
        learned.append([parameter.detach().clone() for parameter in module.parameters()])

    assert all(torch.equal(one, other) for one, other in zip(*learned, strict=True))


def half_precision_stage(recompute: str, shares: bool) -> StageModule:
    """The last stage."""
    plan = PLAN.model_copy(update={"dtype": "bf16", "recompute": recompute})
    module = StageModule(plan, 1, torch.device("cpu"))
    if shares:
        module.share_copies(make_optimizer(module, 0.1))
    return module


def test_what_fits_is_computed_from_what_was_held() -> None:
    """70 MB were held; 40 rest, and 6 × 10 are needed beside them."""
    told = account(PLAN, [HELD], None)

    assert told == (
        "stage 0 of 2 (layers 0 to 3, embedding) held 70.000 MB: weights 10.000 MB, gradients 10.000 MB, optimizer "
        "20.000 MB of 20.000 MB, activations 3 micro-batches in flight × 10.000 MB (window 6); 100.000 MB are needed "
        "in 70.000 MB; what would fit: a window of at most 3 here, or micro_batch 2, or 4 stages"
    )


def test_what_is_left_for_the_second_parts_of_backwards_is_counted_as_far_as_the_order_holds_it() -> None:
    """Four in flight, and two whose backward is half done, each with a half left."""
    told = account(PLAN, [replace(HELD, in_flight=4, left=10 * MB, most=5.0)], None)

    assert "held 90.000 MB:" in told
    assert (
        "4 micro-batches in flight × 10.000 MB (window 6) and 10.000 MB left for gradients of weights" in told
    )
    assert "90.000 MB are needed in 90.000 MB" in told
    assert "a window" not in told


def test_an_order_holds_parts_of_micro_batches() -> None:
    actions = ["0F0", "0F1", "0I0", "0F2", "0I1", "0W0", "0W1", "0F3", "0I2", "0I3", "0W2", "0W3"]
    order = WorkerOrder(stage_ranks=[0], actions=actions)
    changes = {"order": order, "layers_per_stage": [8], "window": [3], "micro_batches": 4}
    strict = rank_plan(PLAN.model_copy(update=changes), 0, 1)

    assert (strict.most_held(0, 1.0), strict.most_held(0, 0.5)) == (3, 2.5)
    assert replace(strict, binding="hint").most_held(0, 0.5) == 3


def test_copies_that_micro_batches_share_rest_with_the_weights() -> None:
    told = account(PLAN, [replace(HELD, copies=5 * MB)], None)

    assert "held 75.000 MB: weights 10.000 MB and their bf16 copies 5.000 MB, gradients" in told
    assert "105.000 MB are needed in 75.000 MB" in told


def test_a_gpu_tells_its_limit_itself() -> None:
    told = account(PLAN, [HELD], GpuMemory(available=92 * MB, allocated=70 * MB))

    assert "the GPU has 92.000 MB for this process, of which 0.000 MB are in other tensors" in told
    assert "a window of at most 5 here, or micro_batch 3, or 3 stages" in told


def test_what_else_is_on_a_gpu_is_not_free() -> None:
    told = account(PLAN, [HELD], GpuMemory(available=92 * MB, allocated=80 * MB))

    assert "of which 10.000 MB are in other tensors" in told
    assert "a window of at most 4 here" in told


def test_moments_that_are_still_to_come_are_counted() -> None:
    told = account(PLAN, [replace(HELD, optimizer=0, gradients=0, in_flight=6)], None)

    assert "a window of at most 3 here" in told  # 70 MB held, 40 of them needed for what rests


def test_where_nothing_fits_it_says_so() -> None:
    told = account(PLAN, [replace(HELD, layers=1, micro_batch_bytes=100 * MB)], GpuMemory(30 * MB, 30 * MB))

    assert told.endswith("what would fit: nothing but more memory")


@pytest.mark.parametrize(
    "error", [MemoryError(), torch.OutOfMemoryError("CUDA out of memory."), RuntimeError("x")]
)
def test_only_errors_of_memory_are_accounted_for(error: Exception) -> None:
    def fails() -> None:
        with memory_accounted(lambda: "the account"):
            raise error

    if str(error) == "x":
        with pytest.raises(RuntimeError, match="x"):
            fails()
        return
    with pytest.raises(WorkerEndError, match="the account; torch says") as caught:
        fails()
    assert caught.value.cause is Cause.OUT_OF_MEMORY
