"""Windowed 1F1B for torch.distributed.pipelining: strict 1F1B, GPipe and slack-1F1B differ in their caps only.

The runtime that executes a list of actions is private in torch 2.13; what of it is used here is pinned by
tests/integration/worker/test_pipelining_contract.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from torch import Tensor, nn
from torch.distributed import ProcessGroup
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import _Action, _ComputationType, _PipelineScheduleRuntime

from agents.worker.busy import BusyMeter

RECEIVES = (_ComputationType.RECV_F, _ComputationType.RECV_B)


def compute_order(window: Sequence[int], micro_batches: int) -> dict[int, list[_Action | None]]:
    """What every stage computes, in order: cap_s forwards, then one backward and one forward in turn."""
    return {stage: _stage_order(stage, cap, micro_batches) for stage, cap in enumerate(window)}


def _stage_order(stage: int, cap: int, micro_batches: int) -> list[_Action | None]:
    forwards = [_Action(stage, _ComputationType.FORWARD, mb) for mb in range(micro_batches)]
    backwards = [_Action(stage, _ComputationType.FULL_BACKWARD, mb) for mb in range(micro_batches)]
    order: list[_Action | None] = list(forwards[:cap])
    for mb, backward in enumerate(backwards):
        order.append(backward)
        order.extend(forwards[cap + mb : cap + mb + 1])
    return order


class MeteredStage(PipelineStage):
    """A pipeline stage that tells the meter when it computes."""

    def __init__(self, meter: BusyMeter, submodule: nn.Module, index: int, stages: int, **where: Any) -> None:
        super().__init__(submodule, index, stages, **where)
        self._meter = meter

    def forward_one_chunk(self, *args: Any, **kwargs: Any) -> Any:
        with self._meter.computing():
            return super().forward_one_chunk(*args, **kwargs)

    def backward_one_chunk(self, *args: Any, **kwargs: Any) -> None:
        with self._meter.computing():
            super().backward_one_chunk(*args, **kwargs)


class WindowedSchedule(_PipelineScheduleRuntime):
    """Executes one iteration of a stage: `step(inputs)` on the first, `step(target=…, losses=[])` on the last.

    Gradients are left in the parameters, averaged over the micro-batches.
    """

    def __init__(
        self,
        stage: PipelineStage,
        window: Sequence[int],
        micro_batches: int,
        loss: Callable[[Tensor, Tensor], Tensor],
    ) -> None:
        super().__init__([stage], micro_batches, loss_fn=loss)  # type: ignore[no-untyped-call]
        self._prepare_schedule_with_comms(compute_order(window, micro_batches))
        if stage.device.type == "cpu":
            order = self.pipeline_order_with_comms[self.rank]
            self.pipeline_order_with_comms[self.rank] = receives_first(order)


def receives_first(order: Sequence[_Action]) -> list[_Action]:
    """Post every receive at the start of the iteration, each kind in the order of its micro-batches.

    gloo sends at once what the other side already waits for, and otherwise asks first: a whole round trip
    more on every message between regions. Torch allocates the buffers of all micro-batches anyway. With NCCL
    this would block the stream, so there the order stays as torch made it.
    """
    return sorted(order, key=lambda action: action.computation_type not in RECEIVES)


def pipeline_stage(
    module: nn.Module,
    index: int,
    stages: int,
    takes: tuple[Tensor, ...],
    gives: tuple[Tensor, ...],
    group: ProcessGroup,
    meter: BusyMeter,
) -> PipelineStage:
    """The stage with static shapes: nothing is inferred by a trial run, and no metadata is pickled.

    `takes` and `gives` are like what it receives and sends for a micro-batch; the first receives tokens. What the
    last stage gives goes nowhere, so the shape told for it does not matter.
    """
    return cast(
        PipelineStage,
        MeteredStage(
            meter,
            module,
            index,
            stages,
            device=gives[0].device,
            input_args=takes,
            output_args=gives,
            group=group,
        ),
    )
