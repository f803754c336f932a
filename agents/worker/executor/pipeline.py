"""Our own executor: driven by what arrives, for hints, several versions of the weights, and any strict order."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from agents.worker.busy import BusyMeter
from agents.worker.executor.decision import decision
from agents.worker.executor.messages import Messages, Tensors
from agents.worker.executor.rank_plan import Action, RankPlan
from agents.worker.executor.stage_work import StageWork
from agents.worker.gradient_norm import GradientNorm


class PipelineExecutor:
    """Runs the iterations of one rank.

    A rank drains what has arrived, lets the decision choose, computes, sends, and waits only when nothing can run.
    """

    def __init__(
        self,
        plan: RankPlan,
        work: Mapping[int, StageWork],
        messages: Messages,
        norm: GradientNorm | None,
        meter: BusyMeter,
    ) -> None:
        """`work` has the stages of this rank; `norm` measures their mean gradients before an iteration's update."""
        self._plan, self._work, self._messages, self._norm = plan, work, messages, norm
        self._meter = meter
        self.sending_s: float | None = None
        self.trace: list[Action] = []
        """What the last iteration computed, in its order."""

    def step(self, inputs: Tensor | None, targets: Tensor | None) -> list[Tensor]:
        """One iteration, with the updates of the weights.

        Gives the losses of the micro-batches, in their order, on the rank of the last stage.
        `inputs` are the sequences of all micro-batches on the rank of the first stage, `targets` those on the last.
        Raises RuntimeError when another rank is gone, or silent for too long.
        """
        iteration = _Iteration(self._plan, self._work, self._messages, inputs, targets)
        self.trace = iteration.trace
        self._messages.begin()
        iteration.run()
        self._messages.end()
        self.sending_s = self._meter.since_computing_s()
        for work in self._work.values():
            work.mean_gradients(self._plan.micro_batches)
        if self._norm is not None:
            self._norm.measure()
        for work in self._work.values():
            work.rule.finish_iteration()
        return [loss for _, loss in sorted(iteration.losses.items())]


class _Iteration:
    """The buffers of one iteration, for each stage and micro-batch."""

    def __init__(
        self,
        plan: RankPlan,
        work: Mapping[int, StageWork],
        messages: Messages,
        inputs: Tensor | None,
        targets: Tensor | None,
    ) -> None:
        self._plan, self._work, self._messages = plan, work, messages
        self._decision = decision(plan)
        self._targets = _split(targets, plan.micro_batches)
        self._inputs: dict[tuple[int, int], Tensors] = {
            (0, each): (tensor,) for each, tensor in enumerate(_split(inputs, plan.micro_batches))
        }
        self._gradients: dict[tuple[int, int], Tensors] = {}
        self.losses: dict[int, Tensor] = {}
        self.trace: list[Action] = []

    def run(self) -> None:
        while not self._decision.finished:
            self._take_in(wait=False)
            action = self._decision.begin()
            if action is None:
                self._take_in(wait=True)
                continue
            self._compute(action)
            self.trace.append(action)
            self._decision.ran(action)

    def _take_in(self, wait: bool) -> None:
        for stage, is_gradient, micro_batch, tensors in self._messages.arrived(wait):
            if is_gradient:
                self._gradients[stage, micro_batch] = tensors
                self._decision.deliver_gradient(stage, micro_batch)
            else:
                self._inputs[stage, micro_batch] = tensors
                self._decision.deliver_input(stage, micro_batch)

    def _compute(self, action: Action) -> None:
        stage, op, micro_batch = action
        work = self._work[stage]
        if op == "F":
            self._forward(work, stage, micro_batch)
        elif op == "W":
            work.weight_gradient(micro_batch)
        else:
            backward = work.backward if op == "B" else work.input_gradient
            gradients = backward(micro_batch, self._gradients.pop((stage, micro_batch), None))
            if self._plan.has(stage - 1):
                self._gradients[stage - 1, micro_batch] = gradients
            elif stage > 0:
                self._messages.send_backward(stage, micro_batch, gradients)

    def _forward(self, work: StageWork, stage: int, micro_batch: int) -> None:
        is_last = stage == self._plan.last_stage
        target = self._targets[micro_batch] if is_last else None
        outputs = work.forward(micro_batch, self._inputs.pop((stage, micro_batch)), target)
        if is_last:
            (self.losses[micro_batch],) = outputs
        elif self._plan.has(stage + 1):
            self._inputs[stage + 1, micro_batch] = outputs
        else:
            self._messages.send_forward(stage, micro_batch, outputs)


def _split(batch: Tensor | None, micro_batches: int) -> Tensors:
    """The part of each micro-batch."""
    return () if batch is None else batch.tensor_split(micro_batches)
