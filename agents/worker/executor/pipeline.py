"""Our own executor: driven by what arrives, for hints, several versions of the weights, and any strict order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor

from agents.worker.busy import BusyMeter
from agents.worker.executor.decision import decision
from agents.worker.executor.messages import Messages, Tensors
from agents.worker.executor.rank_plan import Action, RankPlan
from agents.worker.executor.rules.rhythm import Rhythm
from agents.worker.executor.stage_work import StageWork
from agents.worker.executor.steps import Steps
from agents.worker.gradient_norm import GradientNorm


class PipelineExecutor:
    """Runs the steps of one rank.

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
        """`work` has the stages of this rank; `norm` measures their mean gradients when the pipeline is empty."""
        self._plan, self._work, self._messages, self._norm = plan, work, messages, norm
        self._meter = meter
        self.rules: Sequence[Rhythm] = [each.rule for each in work.values() if isinstance(each.rule, Rhythm)]
        self.sending_s: float | None = None
        self.trace: list[Action] = []
        """What was computed since the pipeline was empty, or since the step before the last ended, in its order."""

    def run(self, steps: Steps) -> None:
        """The steps until the pipeline is empty again, with the updates of the weights.

        Raises RuntimeError when another rank is gone, or silent for too long.
        """
        self.sending_s = None
        stretch = _Stretch(self._plan, self._work, self._messages, steps)
        self.trace = stretch.trace
        self._messages.begin()
        stretch.run()
        self._messages.end()
        self.sending_s = self._meter.since_computing_s()
        for work in self._work.values():
            work.mean_gradients(self._plan.micro_batches)
        if self._norm is not None:
            self._norm.measure()
        for work in self._work.values():
            work.rule.emptied()
        stretch.end_step()


class _Stretch:
    """What runs from an empty pipeline to an empty pipeline, with the buffers of each stage and micro-batch."""

    def __init__(
        self, plan: RankPlan, work: Mapping[int, StageWork], messages: Messages, steps: Steps
    ) -> None:
        self._plan, self._work, self._messages, self._steps = plan, work, messages, steps
        self._decision = decision(plan)
        self._inputs: dict[tuple[int, int], Tensors] = {}
        self._targets: dict[int, Tensor] = {}
        self._gradients: dict[tuple[int, int], Tensors] = {}
        self._losses: dict[int, Tensor] = {}
        self._begun = self._ended = 0  # steps
        self._backwards = dict.fromkeys(plan.stages, 0)
        """Of each stage, those that are whole."""
        self.trace: list[Action] = []
        self._take_batch(0)

    def run(self) -> None:
        """Compute everything. The end of the last step is left to `end_step`."""
        while not self._decision.finished:
            self._hear(wait=self._decision.undecided)
            self._take_in(wait=False)
            action = self._decision.begin()
            if action is not None:
                self._compute(action)
            elif not (self._decision.undecided or self._decision.finished):
                self._take_in(wait=True)

    def end_step(self) -> None:
        """All stages of this rank have gone backward in a step."""
        first = self._ended * self._plan.micro_batches
        micro_batches = range(first, first + self._plan.micro_batches) if self._losses else ()
        losses = [self._losses.pop(each) for each in micro_batches]
        self._ended += 1
        self._steps.end(self._ended - 1, losses)

    def _hear(self, wait: bool) -> None:
        """Whether another step follows those that are known, if that is decided."""
        if self._decision.closed:
            return
        follows = self._steps.follows(wait)
        if follows:
            self._take_batch(self._decision.iterations)
            self._decision.extend()
            self._messages.extend()
        elif follows is not None:
            self._decision.close()
            self._messages.close()

    def _take_batch(self, step: int) -> None:
        first = step * self._plan.micro_batches
        inputs, targets = self._steps.batch(step)
        for micro_batch, part in enumerate(_split(inputs, self._plan.micro_batches), first):
            self._inputs[0, micro_batch] = (part,)
        self._targets.update(enumerate(_split(targets, self._plan.micro_batches), first))

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
        step = micro_batch // self._plan.micro_batches
        if step == self._begun:
            self._begun += 1
            self._steps.begin(step)
        work = self._work[stage]
        if op == "F":
            self._forward(work, stage, micro_batch)
        elif op == "W":
            work.weight_gradient(micro_batch)
        else:
            self._backward(work, action)
        self.trace.append(action)
        self._decision.ran(action)
        if op in ("B", "W"):
            self._backward_is_whole(stage)

    def _backward_is_whole(self, stage: int) -> None:
        self._backwards[stage] += 1
        steps, rest = divmod(self._backwards[stage], self._plan.micro_batches)
        if not rest:
            self._steps.turn(stage, steps)
        if min(self._backwards.values()) == (self._ended + 1) * self._plan.micro_batches:
            self._step_is_over()

    def _step_is_over(self) -> None:
        """Of the last step before the pipeline is empty, that is for later."""
        while self._decision.iterations == self._ended + 1 and not self._decision.closed:
            self._hear(wait=True)
        if self._decision.iterations > self._ended + 1:
            self.end_step()
            self.trace.clear()

    def _forward(self, work: StageWork, stage: int, micro_batch: int) -> None:
        is_last = stage == self._plan.last_stage
        target = self._targets.pop(micro_batch) if is_last else None
        outputs = work.forward(micro_batch, self._inputs.pop((stage, micro_batch)), target)
        if is_last:
            (self._losses[micro_batch],) = outputs
        elif self._plan.has(stage + 1):
            self._inputs[stage + 1, micro_batch] = outputs
        else:
            self._messages.send_forward(stage, micro_batch, outputs)

    def _backward(self, work: StageWork, action: Action) -> None:
        stage, op, micro_batch = action
        backward = work.backward if op == "B" else work.input_gradient
        gradients = backward(micro_batch, self._gradients.pop((stage, micro_batch), None))
        if self._plan.has(stage - 1):
            self._gradients[stage - 1, micro_batch] = gradients
        elif stage > 0:
            self._messages.send_backward(stage, micro_batch, gradients)


def _split(batch: Tensor | None, micro_batches: int) -> Tensors:
    """The part of each micro-batch."""
    return () if batch is None else batch.tensor_split(micro_batches)
