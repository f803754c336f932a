"""What a stage computes for one micro-batch: its forward, and its backward, whole or in two parts.

Of a split backward the first part computes the gradient of the stage's input and keeps the gradients that reach each
layer with weights, the second continues from there into the weights: nothing is computed twice (Qi et al., arXiv
2401.10241). Both parts are torch.distributed.pipelining's own; tests/integration/worker/test_pipelining_contract.py
holds what is used of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.pipelining._backward import stage_backward_input, stage_backward_weight

from agents.worker.busy import BusyMeter
from agents.worker.executor.messages import Tensors
from agents.worker.executor.weights import WeightRule

Loss = Callable[[Tensor, Tensor], Tensor]
"""(logits, targets) -> the mean loss of a micro-batch."""


@dataclass(frozen=True, slots=True)
class _InFlight:
    """What a micro-batch keeps between its forward and its backward: of the output, what asks for a gradient."""

    inputs: Tensors
    learned: Tensors
    """The loss, on the last stage."""


@dataclass(frozen=True, slots=True)
class _Pending:
    """What a micro-batch keeps between the two parts of its backward."""

    held: _InFlight
    gradients: Tensors | None
    groups: list[dict[str, Any]]


class StageWork:
    """Computes one stage. The gradient of each micro-batch's own mean loss is added to `parameter.grad`.

    Outputs and inputs are tuples; those that are not floating point (token ids) have no gradient.
    """

    def __init__(
        self,
        module: nn.Module,
        loss: Loss | None,
        is_first: bool,
        rule: WeightRule,
        meter: BusyMeter,
        beside: Sequence[nn.Parameter] = (),
    ) -> None:
        """`loss` is that of the last stage, and None on all others.

        `beside` are parameters of the module that the rule does not update.
        """
        self._module, self._loss, self._is_first = module, loss, is_first
        self.rule, self._meter, self._beside = rule, meter, beside
        self._in_flight: dict[int, _InFlight] = {}
        self._pending: dict[int, _Pending] = {}

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
        held = self._in_flight.pop(micro_batch)
        with self._meter.computing(), self.rule.backward_weights(micro_batch):
            torch.autograd.backward(held.learned, gradients)
        self.rule.after_backward(micro_batch)
        return tuple(tensor.grad for tensor in held.inputs if tensor.grad is not None)

    def input_gradient(self, micro_batch: int, gradients: Tensors | None) -> Tensors:
        """The first part of a split backward. The first stage, whose input has no gradient, leaves all to W."""
        held = self._in_flight.pop(micro_batch)
        if self._is_first:
            self._pending[micro_batch] = _Pending(held, gradients, [])
            return ()
        with self._meter.computing(), self.rule.backward_weights(micro_batch):
            found, groups = stage_backward_input(
                list(held.learned),
                None if gradients is None else list(gradients),
                list(held.inputs),
                self._module.parameters(),
            )
        self._pending[micro_batch] = _Pending(held, None, groups)
        return tuple(gradient for gradient in found if gradient is not None)

    def weight_gradient(self, micro_batch: int) -> None:
        """The second part of a split backward."""
        pending = self._pending.pop(micro_batch)
        with self._meter.computing(), self.rule.backward_weights(micro_batch):
            if self._is_first:
                torch.autograd.backward(pending.held.learned, pending.gradients)
            else:
                stage_backward_weight(self._module.parameters(), pending.groups)
        self.rule.after_backward(micro_batch)

    def mean_gradients(self, micro_batches: int) -> None:
        """What follows the last backward: the gradients by which an iteration ends, averaged, beside the rule too."""
        self.rule.mean_gradients()
        for parameter in self._beside:
            if parameter.grad is not None:
                parameter.grad.div_(micro_batches)
