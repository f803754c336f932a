"""One stage of the model with what trains and keeps it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from agents.protocol import WorkerPlan
from agents.worker.checkpoint.folder import CheckpointPart
from agents.worker.codec.files import codec_names, codec_tensors, restore_codec
from agents.worker.codec.stage import CodedStage
from agents.worker.codec.training import CodecTraining
from agents.worker.left import LeftGradients
from agents.worker.optimizer import layer_tensors, make_muon, make_optimizer, restore_layer
from agents.worker.stage import StageModule


@dataclass(frozen=True, slots=True)
class TrainedStage:
    """A stage of this rank."""

    index: int
    """In the pipeline, from 0."""
    module: StageModule
    computes: nn.Module
    """The module between the ends of its coded boundaries, if the plan has a codec."""
    optimizer: torch.optim.Optimizer
    codec: CodecTraining | None
    left: LeftGradients | None
    """Where backwards come in two parts: what the first leaves for the second."""

    @classmethod
    def of(cls, plan: WorkerPlan, index: int, device: torch.device) -> TrainedStage:
        """The stage with the weights that training begins with."""
        module = StageModule(plan, index, device)
        rate = plan.learning_rate
        optimizer: torch.optim.Optimizer = (
            make_muon(module.named_layers(), rate)
            if plan.optimizer == "muon"
            else make_optimizer(module, rate)
        )
        # Otherwise weights change while micro-batches are in flight.
        if plan.weight_rule == "flush":
            module.share_copies(optimizer)
        left = _left_by(module, plan)
        if plan.codec is None:
            return cls(index, module, module, optimizer, None, left)
        coded = CodedStage(plan, plan.codec, index, module, device)
        return cls(index, module, coded, optimizer, CodecTraining(coded, plan.learning_rate), left)

    def set_learning_rate(self, learning_rate: float) -> None:
        """Of the steps from now on."""
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate
        if self.codec is not None:
            self.codec.set_learning_rate(learning_rate)

    def average_gradients(self, average: Callable[[Sequence[Tensor]], None]) -> None:
        """Replace the gradients by their means over the replicas, a layer at a time."""
        for _, layer in self.module.named_layers():
            average([parameter.grad for parameter in layer.parameters() if parameter.grad is not None])

    def checkpoint_tensors(self) -> dict[str, dict[str, Tensor]]:
        """Its part of a checkpoint: for each file the named tensors, which training goes on changing."""
        layers = {name: layer_tensors(self.optimizer, layer) for name, layer in self.module.named_layers()}
        return layers | (codec_tensors(self.codec) if self.codec is not None else {})

    def names_in(self, files: Iterable[str]) -> list[str]:
        """Under which names its part is in a checkpoint with these files."""
        layers = [name for name, _ in self.module.named_layers()]
        return layers + (codec_names(self.codec, files) if self.codec is not None else [])

    def restore(self, part: CheckpointPart, updates_a_step: int = 1) -> None:
        """Go on from what was read under `names_in`. Raises WorkerEndError `checkpoint-unusable`."""
        updates = part.step * updates_a_step
        for name, layer in self.module.named_layers():
            part.restore(name, partial(restore_layer, self.optimizer, layer, updates=updates))
        if self.codec is not None:
            restore_codec(part, self.codec)


def _left_by(module: StageModule, plan: WorkerPlan) -> LeftGradients | None:
    """With full recompute a first part does all: what it would leave is more than a micro-batch in flight keeps."""
    splits = plan.order is not None and any("W" in action for action in plan.order.actions)
    return module.leave_gradients() if splits and plan.recompute != "full" else None
