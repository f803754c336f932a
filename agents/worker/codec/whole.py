"""All stages of a coded pipeline in one process: what a gang computes, without its messages."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from agents.protocol import WorkerCodec, WorkerPlan
from agents.worker.codec.edge import Anchors
from agents.worker.codec.stage import CodedStage
from agents.worker.stage import StageModule


class CodedModel(nn.Module):
    """The stages one after the other. Both ends of a boundary have one projector, so that a backward pass gives it the
    whole gradient, which a gang has to sum."""

    def __init__(self, plan: WorkerPlan, codec: WorkerCodec, device: torch.device) -> None:
        super().__init__()
        stages = [
            CodedStage(plan, codec, stage, StageModule(plan, stage, device), device)
            for stage in range(len(plan.layers_per_stage))
        ]
        self.projectors: list[nn.Parameter] = []
        self.anchors: list[Anchors] = []
        for stage in stages:
            if stage.receiver is not None:
                stage.receiver.projector = self.projectors[-1]
                self.anchors.append(stage.receiver.anchors)
            if stage.sender is not None:
                self.projectors.append(stage.sender.projector)
                self.anchors.append(stage.sender.anchors)
        self.stages = nn.ModuleList(stages)
        self.layers = nn.ModuleList(stage.module for stage in stages)
        """The model without its codecs, stage by stage."""

    def forward(self, tokens: Tensor) -> Tensor:
        passed: tuple[Tensor, ...] = (tokens,)
        for stage in self.stages:
            given = stage(*passed)
            passed = given if isinstance(given, tuple) else (given,)
        return passed[0]
