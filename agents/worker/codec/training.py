"""How the codecs of a stage learn: anchors by AdamW, each projector by SPEL where its sender is.

The receiver works with a copy of A, so dL/dA has a part there: it goes back to the sender once a step, which adds
its own and answers with the new A. So A has the gradient that it would have in one process.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor, nn

from agents.worker.busy import BusyMeter
from agents.worker.codec.edge import Receiver, Sender
from agents.worker.codec.stage import CodedStage
from agents.worker.codec.stiefel import Spel
from agents.worker.gang import Gang
from agents.worker.optimizer import make_optimizer

STEP_SIZE = 0.1
"""Of a projector, as a part of the learning rate (MAPL)."""


class CodecTraining:
    """Trains the ends of coded boundaries that a stage has: none, the receiver, the sender, or both."""

    def __init__(self, stage: CodedStage, learning_rate: float) -> None:
        self.ends: list[Sender | Receiver] = [
            end for end in (stage.receiver, stage.sender) if end is not None
        ]
        self._receiver, self._sender = stage.receiver, stage.sender
        self.anchors = make_optimizer(nn.ModuleList(end.anchors for end in self.ends), learning_rate)
        self.spel = None
        if stage.sender is not None:
            self.spel = Spel(stage.sender.projector.data, STEP_SIZE * learning_rate)

    def set_learning_rate(self, learning_rate: float) -> None:
        """Of the steps from now on."""
        for group in self.anchors.param_groups:
            group["lr"] = learning_rate
        if self.spel is not None:
            self.spel.step_size = STEP_SIZE * learning_rate

    def step(self, gang: Gang, meter: BusyMeter) -> None:
        """Update by the gradients of an iteration; every stage with an end calls it between the same iterations."""
        if not self.ends:
            return
        gang.average([gradient_of(parameter) for end in self.ends for parameter in end.parameters()])
        partial = self._gradient_from_receiver(gang)
        with meter.computing():
            self.anchors.step()
            if self.spel is not None and self._sender is not None and partial is not None:
                self.spel.step(gradient_of(self._sender.projector) + partial)
        self._projector_to_receiver(gang)
        for end in self.ends:
            end.zero_grad()

    def _gradient_from_receiver(self, gang: Gang) -> Tensor | None:
        """What the receiver behind this stage has of dL/dA; what this stage has as a receiver goes to its sender."""
        partial = None if self._sender is None else torch.empty_like(self._sender.projector.data)
        messages = []
        if self._receiver is not None:
            messages.append(_to_previous(dist.isend, gradient_of(self._receiver.projector), gang))
        if partial is not None:
            messages.append(_to_next(dist.irecv, partial, gang))
        _wait(messages)
        return partial

    def _projector_to_receiver(self, gang: Gang) -> None:
        messages = []
        if self._sender is not None:
            messages.append(_to_next(dist.isend, self._sender.projector.data, gang))
        if self._receiver is not None:
            messages.append(_to_previous(dist.irecv, self._receiver.projector.data, gang))
        _wait(messages)


def gradient_of(parameter: nn.Parameter) -> Tensor:
    """The gradient of a parameter that every iteration uses. Raises RuntimeError before the first backward."""
    if parameter.grad is None:
        raise RuntimeError("a codec learns after the backward passes of an iteration, and there was none")
    return parameter.grad


def _to_next(what: Callable[..., dist.Work | None], tensor: Tensor, gang: Gang) -> dist.P2POp:
    return dist.P2POp(what, tensor, gang.place.rank + gang.place.data_size, gang.pipeline)


def _to_previous(what: Callable[..., dist.Work | None], tensor: Tensor, gang: Gang) -> dist.P2POp:
    return dist.P2POp(what, tensor, gang.place.rank - gang.place.data_size, gang.pipeline)


def _wait(messages: list[dist.P2POp]) -> None:
    for work in dist.batch_isend_irecv(messages) if messages else ():
        work.wait()
