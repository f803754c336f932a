"""What the worker uses of torch.distributed.pipelining and is not promised: a new torch has to keep this."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import _add_send_recv, _PipelineScheduleRuntime

from agents.worker.busy import BusyMeter
from agents.worker.schedule import WindowedSchedule, compute_order, pipeline_stage, receives_first

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


@pytest.fixture
def alone() -> Iterator[dist.ProcessGroup]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    assert dist.group.WORLD is not None
    yield dist.group.WORLD
    dist.destroy_process_group()


def test_the_runtime_executes_the_order_and_averages_gradients(alone: dist.ProcessGroup) -> None:
    """REDUCE_GRAD is what divides by the micro-batches: without it gradients would be their sum."""
    module = torch.nn.Linear(3, 3, bias=False)
    x, target = torch.randn(4, 3), torch.randn(4, 3)
    torch.nn.functional.mse_loss(module(x), target).backward()
    assert module.weight.grad is not None
    whole_batch = module.weight.grad.clone()
    module.weight.grad = None
    example = torch.empty(2, 3, requires_grad=True)
    meter = BusyMeter(torch.device("cpu"))
    stage = pipeline_stage(module, 0, 1, (torch.empty(2, 3),), (example,), alone, meter)
    schedule = WindowedSchedule(stage, [1], 2, torch.nn.functional.mse_loss)
    losses: list[torch.Tensor] = []

    schedule.step(x, target=target, losses=losses, return_outputs=False)

    assert isinstance(stage, PipelineStage)
    assert isinstance(schedule, _PipelineScheduleRuntime)
    assert "0REDUCE_GRAD" in shown(schedule.pipeline_order_with_comms[0])
    assert len(losses) == 2
    torch.testing.assert_close(module.weight.grad, whole_batch)
