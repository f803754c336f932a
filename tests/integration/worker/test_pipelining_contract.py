"""What the worker uses of torch.distributed.pipelining and is not promised: a new torch has to keep this."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import _add_send_recv, _PipelineScheduleRuntime

from agents.protocol import WorkerOrder
from agents.worker.busy import BusyMeter
from agents.worker.executor.from_wire import rank_plan
from agents.worker.left import LeftGradients
from agents.worker.matrix import Matrix
from agents.worker.schedule import (
    PlannedRuntime,
    TorchExecutor,
    compute_order,
    pipeline_stage,
    receives_first,
    with_reductions,
)
from scheduler.pipeline.plan.layouts import line
from scheduler.pipeline.plan.orders import gpipe
from scheduler.pipeline.plan.split_orders import zb_h1
from tests.given_steps import one_step
from tests.plans import together
from tests.wire_plans import wire_plan

pytestmark = pytest.mark.xdist_group("stage-workers")


def shown(actions: Any) -> str:
    return " ".join(str(action) for action in actions)


@pytest.mark.parametrize(
    ("window", "orders"),
    [
        ([3, 2, 1], ["0F0 0F1 0F2 0B0 0F3 0B1 0B2 0B3", "1F0 1F1 1B0 1F2 1B1 1F3 1B2 1B3",
                     "2F0 2B0 2F1 2B1 2F2 2B2 2F3 2B3"]),
        ([4, 4], ["0F0 0F1 0F2 0F3 0B0 0B1 0B2 0B3", "1F0 1F1 1F2 1F3 1B0 1B1 1B2 1B3"]),
        ([9, 2], ["0F0 0F1 0F2 0F3 0B0 0B1 0B2 0B3", "1F0 1F1 1B0 1F2 1B1 1F3 1B2 1B3"]),
    ],
)  # fmt: skip
def test_a_window_is_an_order_of_actions(window: list[int], orders: list[str]) -> None:
    assert [shown(actions) for actions in compute_order(window, 4).values()] == orders


def test_torch_adds_the_messages_and_receives_can_go_first() -> None:
    order = {rank: list(actions) for rank, actions in compute_order([2, 1], 2).items()}
    with_messages = _add_send_recv(order, stage_to_rank=lambda stage: stage, num_stages=2)

    assert shown(with_messages[0]) == "0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0B0 0RECV_B1 0B1"
    assert shown(receives_first(with_messages[0])) == "0RECV_B0 0RECV_B1 0F0 0SEND_F0 0F1 0SEND_F1 0B0 0B1"
    assert shown(receives_first(with_messages[1])) == "1RECV_F0 1RECV_F1 1F0 1B0 1SEND_B0 1F1 1B1 1SEND_B1"


ONE_STAGE = {
    "order": WorkerOrder(stage_ranks=[0], actions=["0F0", "0F1", "0I1", "0I0", "0W0", "0W1"]),
    "layers_per_stage": [1],
}


@pytest.fixture
def alone() -> Iterator[dist.ProcessGroup]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    assert dist.group.WORLD is not None
    yield dist.group.WORLD
    dist.destroy_process_group()


@pytest.mark.parametrize(
    "changes", [{"order": None, "window": [1]}, {**ONE_STAGE, "window": [2]}], ids=["window", "split"]
)
def test_the_runtime_executes_the_order_and_averages_gradients(
    alone: dist.ProcessGroup, changes: dict[str, Any]
) -> None:
    """REDUCE_GRAD is what divides by the micro-batches: without it gradients would be their sum."""
    module = torch.nn.Linear(3, 3, bias=False)
    x, target = torch.randn(4, 3), torch.randn(4, 3)
    torch.nn.functional.mse_loss(module(x), target).backward()
    assert module.weight.grad is not None
    whole_batch = module.weight.grad.clone()
    module.weight.grad = None
    example = torch.empty(2, 3, requires_grad=True)
    meter = BusyMeter(torch.device("cpu"))
    plan = rank_plan(wire_plan(together(line(1), gpipe(1, 2)), 0, **changes), 0, 1)
    stage = pipeline_stage(module, 0, 1, (torch.empty(2, 3),), (example,), alone, meter)
    updates: list[None] = []
    loss = torch.nn.functional.mse_loss
    executor = TorchExecutor([stage], plan, loss, lambda: updates.append(None), meter)

    losses = one_step(executor, x, target)

    assert isinstance(stage, PipelineStage)
    assert (len(losses), len(updates)) == (2, 1)
    assert shown(executor.trace) == shown(plan.computations)
    torch.testing.assert_close(module.weight.grad, whole_batch)


def test_an_order_with_messages_gets_its_reductions() -> None:
    plan = rank_plan(wire_plan(together(line(2), zb_h1(2, 2)), 1), 1, 2)

    assert shown(with_reductions(plan)) == (
        "1RECV_F0 1F0 1I0 1SEND_B0 1RECV_F1 1F1 1I1 1SEND_B1 1W0 1W1 1REDUCE_GRAD"
    )
    assert issubclass(PlannedRuntime, _PipelineScheduleRuntime)


def test_torch_leaves_the_gradients_of_weights_to_the_second_part(alone: dist.ProcessGroup) -> None:
    """`dw_builder`: asked after a whole backward and after a first part alike, and called for W."""
    told: list[str] = []

    class Left(LeftGradients):
        def take(self) -> Callable[[], None]:
            compute = super().take()

            def told_of() -> None:
                told.append(f"{self.held_bytes > 0}")
                compute()

            return told_of

    left, matrix = Left(), Matrix(3, 3, torch.float32)
    matrix.left = left
    x, target = torch.randn(4, 3), torch.randn(4, 3)
    torch.nn.functional.mse_loss(x @ matrix.weight.T, target).backward()
    assert matrix.weight.grad is not None
    whole_batch, matrix.weight.grad = matrix.weight.grad, None
    meter = BusyMeter(torch.device("cpu"))
    order = WorkerOrder(stage_ranks=[0], actions=["0F0", "0F1", "0B1", "0I0", "0W0"])
    plan = rank_plan(
        wire_plan(together(line(1), gpipe(1, 2)), 0, order=order, window=[2], layers_per_stage=[1]), 0, 1
    )
    given = torch.empty(2, 3, requires_grad=True)
    stage = pipeline_stage(matrix, 0, 1, (torch.empty(2, 3),), (given,), alone, meter, left)
    executor = TorchExecutor([stage], plan, torch.nn.functional.mse_loss, lambda: None, meter)

    one_step(executor, x, target)

    assert told == ["True", "True"]
    torch.testing.assert_close(matrix.weight.grad, whole_batch)
