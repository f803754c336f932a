"""What a stage computes for one micro-batch: its forward, and its backward, whole or in two parts.

Of a split backward the first part goes through the whole stage and leaves the gradients of its layers' matrices, which
the second computes (`agents.worker.left`): nothing is computed twice, and nothing else is kept between the parts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from agents.worker.busy import BusyMeter
from agents.worker.executor.messages import Tensors
from agents.worker.executor.weights import WeightRule
from agents.worker.left import LeftGradients

Loss = Callable[[Tensor, Tensor], Tensor]
"""(logits, targets) -> the mean loss of a micro-batch."""


@dataclass(frozen=True, slots=True)
class _InFlight:
    """What a micro-batch keeps between its forward and its backward: of the output, what asks for a gradient."""

    inputs: Tensors
    learned: Tensors
    """The loss, on the last stage."""


class StageWork:
    """Computes one stage. The gradient of each micro-batch's own mean loss is added to `parameter.grad`.

    Outputs and inputs are tuples; those that are not floating point (token ids) have no gradient.
    """

    def __init__(
        self,
        module: nn.Module,
        loss: Loss | None,
        rule: WeightRule,
        meter: BusyMeter,
        left: LeftGradients | None = None,
        beside: Sequence[nn.Parameter] = (),
    ) -> None:
        """`loss` is that of the last stage, and None on all others.

        `left` is where backwards of the module leave gradients of weights; without it the first part of a split
        backward does all. `beside` are parameters of the module that the rule does not update.
        """
        self._module, self._loss = module, loss
        self.rule, self._meter, self._left, self._beside = rule, meter, left, beside
        self._in_flight: dict[int, _InFlight] = {}
        self._pending: dict[int, Callable[[], None]] = {}

    def forward(self, micro_batch: int, inputs: Tensors, target: Tensor | None) -> Tensors:
        """What the next stage takes; the loss, on the last stage, which takes the target of the micro-batch."""
        inputs = tuple(tensor.detach().requires_grad_(tensor.is_floating_point()) for tensor in inputs)
        with self._meter.computing(), self.rule.forward_weights(micro_batch):
            given = self._module(*inputs)
            outputs: Tensors = given if isinstance(given, tuple) else (given,)
            if self._loss is not None and target is not None:
                outputs = (self._loss(outputs[0], target),)
        learned = tuple(tensor for tensor in outputs if tensor.requires_grad)
        self._in_flight[micro_batch] = _InFlight(inputs, learned)
        return tuple(tensor.detach() for tensor in outputs)

    def backward(self, micro_batch: int, gradients: Tensors | None) -> Tensors:
        """The gradients of the input, none on the first stage; `gradients` are those of the output, None of a loss."""
        found = self.input_gradient(micro_batch, gradients)
        self.weight_gradient(micro_batch)
        return found

    def input_gradient(self, micro_batch: int, gradients: Tensors | None) -> Tensors:
        """The first part of a split backward: as `backward`, but those of matrices are left for the second."""
        held = self._in_flight.pop(micro_batch)
        with self._meter.computing(), self.rule.backward_weights(micro_batch):
            torch.autograd.backward(held.learned, gradients)
        if self._left is None:
            self.rule.after_backward(micro_batch)
        else:
            self._pending[micro_batch] = self._left.take()
        return tuple(tensor.grad for tensor in held.inputs if tensor.grad is not None)

    def weight_gradient(self, micro_batch: int) -> None:
        """The second part of a split backward."""
        if self._left is not None:
            with self._meter.computing():
                self._pending.pop(micro_batch)()
            self.rule.after_backward(micro_batch)

    def mean_gradients(self, micro_batches: int) -> None:
        """What follows the last backward: the gradients by which an iteration ends, averaged, beside the rule too."""
        self.rule.mean_gradients()
        for parameter in self._beside:
            if parameter.grad is not None:
                parameter.grad.div_(micro_batches)
