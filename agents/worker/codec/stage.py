"""A stage whose boundaries are coded where they cross regions, and what its neighbours send it then."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from agents.protocol import WorkerCodec, WorkerPlan
from agents.worker.codec.edge import Receiver, Sender
from agents.worker.stage import StageModule, boundary_example

ID_DTYPE = torch.int32
"""Of the token ids on the wire."""


class CodedStage(nn.Module):
    """A stage between its codecs: decodes what comes in, computes its layers, encodes what leaves.

    The first stage takes tokens [b, s]; the others the stream [b, s, h] or its projection [b, s, r], and with it the
    ids [b, s] as far as a later boundary needs them. It gives likewise what the next one takes.
    """

    def __init__(
        self, plan: WorkerPlan, codec: WorkerCodec, stage: int, module: StageModule, device: torch.device
    ) -> None:
        super().__init__()
        self.module = module
        ends = (plan.model, codec.rank, plan.seed)
        self.receiver: Receiver | None = None
        self.sender: Sender | None = None
        if stage - 1 in codec.boundaries:
            self.receiver = Receiver(*ends, last_layer(plan, stage - 1)).to(device)
        if stage in codec.boundaries:
            self.sender = Sender(*ends, last_layer(plan, stage)).to(device)
        self.is_first = stage == 0
        self.sends_ids = carries_ids(codec, stage)

    def forward(self, received: Tensor, *with_it: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        ids = received.to(ID_DTYPE) if self.is_first else with_it[0] if with_it else None
        stream = received
        if self.receiver is not None:
            with self._in_precision_of_layers():
                stream = self.receiver(received, ids)
        stream = self.module(stream)
        if self.sender is not None:
            with self._in_precision_of_layers():
                stream = self.sender(stream, ids)
        return (stream, ids) if self.sends_ids and ids is not None else stream

    def _in_precision_of_layers(self) -> torch.autocast:
        return torch.autocast(
            self.module.device_type, dtype=torch.bfloat16, enabled=self.module.half_precision
        )


def last_layer(plan: WorkerPlan, stage: int) -> int:
    """The last layer of a stage: the boundary behind it is known by it, whatever the cut."""
    return sum(plan.layers_per_stage[: stage + 1]) - 1


def carries_ids(codec: WorkerCodec, stage: int) -> bool:
    """Whether the ids go from a stage to the next: as far as a coded boundary is still to come."""
    return stage <= max(codec.boundaries)


def message_example(plan: WorkerPlan, stage: int, device: torch.device) -> tuple[Tensor, ...]:
    """Tensors like those that a stage sends to the next. What is learned asks for a gradient, ids do not."""
    codec, width = plan.codec, plan.model.hidden
    if codec is None or not carries_ids(codec, stage):
        return (boundary_example(plan, width, device),)
    stream = boundary_example(plan, codec.rank if stage in codec.boundaries else width, device)
    return stream, torch.zeros(stream.shape[:2], dtype=ID_DTYPE, device=device)
