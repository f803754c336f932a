"""Strict plans on torch.distributed.pipelining: its runtime executes a list of actions as it is.

That runtime is private in torch 2.13; what of it is used here is pinned by
tests/integration/worker/test_pipelining_contract.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor, nn
from torch.distributed import ProcessGroup
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import _Action, _ComputationType, _PipelineScheduleRuntime

from agents.worker.busy import BusyMeter
from agents.worker.executor.rank_plan import Action, Op, RankPlan, windowed
from agents.worker.executor.rules.rhythm import Rhythm
from agents.worker.executor.steps import Steps
from agents.worker.left import LeftGradients

RECEIVES = (_ComputationType.RECV_F, _ComputationType.RECV_B)


def compute_order(window: Sequence[int], micro_batches: int) -> dict[int, list[_Action | None]]:
    """What every stage computes, in order: cap_s forwards, then one backward and one forward in turn."""
    return {
        stage: [_Action.from_str(str(action)) for action in windowed(stage, cap, micro_batches)]
        for stage, cap in enumerate(window)
    }


def with_reductions(plan: RankPlan) -> list[_Action]:
    """The actions of an order with its messages. Each stage ends with REDUCE_GRAD: only there does torch divide the
    gradients by the number of micro-batches.
    """
    last = {action.stage: action for action in plan.computations}
    order = []
    for action in plan.actions:
        order.append(_Action.from_str(str(action)))
        if last[action.stage] == action:
            order.append(_Action(action.stage, _ComputationType.REDUCE_GRAD, None))
    return order


class MeteredStage(PipelineStage):
    """A pipeline stage that tells the meter when it computes, and keeps in `trace` what."""

    def __init__(self, meter: BusyMeter, submodule: nn.Module, index: int, stages: int, **where: Any) -> None:
        super().__init__(submodule, index, stages, **where)
        self._meter = meter
        self.trace: list[Action] = []

    def forward_one_chunk(self, fwd_chunk_id: int, *args: Any, **kwargs: Any) -> Any:
        self._computes("F", fwd_chunk_id)
        with self._meter.computing():
            return super().forward_one_chunk(fwd_chunk_id, *args, **kwargs)

    def backward_one_chunk(
        self, bwd_chunk_id: int, loss: Any = None, full_backward: bool = True, last_backward: bool = False
    ) -> None:
        self._computes("B" if full_backward else "I", bwd_chunk_id)
        with self._meter.computing():
            super().backward_one_chunk(bwd_chunk_id, loss, full_backward, last_backward)

    def backward_weight_one_chunk(self, bwd_chunk_id: int, *args: Any, **kwargs: Any) -> None:
        self._computes("W", bwd_chunk_id)
        with self._meter.computing():
            super().backward_weight_one_chunk(bwd_chunk_id, *args, **kwargs)

    def _computes(self, op: Op, micro_batch: int) -> None:
        self.trace.append(Action(self.stage_index, op, micro_batch))


class TorchExecutor:
    """Runs the steps of one rank on torch's runtime."""

    def __init__(
        self,
        stages: Sequence[MeteredStage],
        plan: RankPlan,
        loss: Callable[[Tensor, Tensor], Tensor],
        update: Callable[[], None],
        meter: BusyMeter,
    ) -> None:
        """`update` is what follows the last backward, with the mean gradients of the micro-batches in place."""
        self._runtime = PlannedRuntime(stages, plan, loss)
        self._update, self._meter = update, meter
        self.rules: Sequence[Rhythm] = ()
        self.sending_s: float | None = None
        self.trace: list[Action] = []
        """What the last iteration computed, in its order."""
        for stage in stages:
            stage.trace = self.trace

    def run(self, steps: Steps) -> None:
        """The first step: here the pipeline is empty after each."""
        steps.begin(0)
        steps.end(0, self._step(*steps.batch(0)))

    def _step(self, inputs: Tensor | None, targets: Tensor | None) -> list[Tensor]:
        self.trace.clear()
        losses: list[Tensor] = []
        self._runtime.step(
            *(() if inputs is None else (inputs,)),
            target=targets,
            losses=None if targets is None else losses,
            return_outputs=False,
        )
        self.sending_s = self._meter.since_computing_s()
        self._update()
        return [loss.detach() for loss in losses]


class PlannedRuntime(_PipelineScheduleRuntime):
    """torch's runtime with the order of a plan. It leaves gradients in the parameters, averaged over micro-batches."""

    def __init__(
        self,
        stages: Sequence[PipelineStage],
        plan: RankPlan,
        loss: Callable[[Tensor, Tensor], Tensor],
    ) -> None:
        super().__init__(list(stages), plan.micro_batches, loss_fn=loss)  # type: ignore[no-untyped-call]
        if plan.is_window:
            self._prepare_schedule_with_comms(compute_order(plan.caps, plan.micro_batches))
        else:
            self.pipeline_order_with_comms = {self.rank: with_reductions(plan)}
            for stage in stages:
                stage.stage_index_to_group_rank = dict(enumerate(plan.stage_ranks))
        if stages[0].device.type == "cpu":
            order = self.pipeline_order_with_comms[self.rank]
            self.pipeline_order_with_comms[self.rank] = receives_first(order)


def receives_first(order: Sequence[_Action]) -> list[_Action]:
    """Post every receive at the start of the iteration, in their order.

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
    left: LeftGradients | None = None,
) -> MeteredStage:
    """The stage with static shapes: nothing is inferred by a trial run, and no metadata is pickled.

    `takes` and `gives` are like what it receives and sends for a micro-batch; the first receives tokens. What the
    last stage gives goes nowhere, so the shape told for it does not matter. `left` is where backwards of the module
    leave the gradients of its weights; without it the first part of a split backward does all.
    """
    return MeteredStage(
        meter,
        module,
        index,
        stages,
        device=gives[0].device,
        input_args=takes,
        output_args=gives,
        group=group,
        dw_builder=_nothing_left if left is None else left.take,
    )


def _nothing_left() -> Callable[[], None]:
    """Torch would keep the graph for a second part."""
    return lambda: None
