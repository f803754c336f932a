"""One stage of the model with what trains and keeps it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from agents.protocol import WorkerPlan
from agents.worker.checkpoint import CheckpointFolder
from agents.worker.codec.files import read_codec, write_codec
from agents.worker.codec.stage import CodedStage
from agents.worker.codec.training import CodecTraining
from agents.worker.optimizer import make_muon, make_optimizer
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
        if plan.codec is None:
            return cls(index, module, module, optimizer, None)
        coded = CodedStage(plan, plan.codec, index, module, device)
        return cls(index, module, coded, optimizer, CodecTraining(coded, plan.learning_rate))

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

    def write(self, folder: CheckpointFolder, step: int) -> None:
        """Write its part of a checkpoint."""
        folder.write_stage(step, self.module, self.optimizer)
        if self.codec is not None:
            write_codec(folder, step, self.codec)

    def read(self, folder: CheckpointFolder, step: int) -> None:
        """Go on from its part of a checkpoint."""
        folder.read_stage(step, self.module, self.optimizer)
        if self.codec is not None:
            read_codec(folder, step, self.codec)
