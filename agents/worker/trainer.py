"""The stages of one rank with everything that trains them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from agents.worker.busy import BusyMeter
from agents.worker.data import Corpus
from agents.worker.executor.assembly import Executor
from agents.worker.executor.steps import Batch
from agents.worker.gang import Gang
from agents.worker.gradient_norm import GradientNorm
from agents.worker.lateness import Lateness
from agents.worker.learning_rate import rate_factor
from agents.worker.memory import ActivationMeter, account, figures, gpu_memory
from agents.worker.settings import Settings
from agents.worker.trained_stage import TrainedStage


@dataclass(frozen=True, slots=True)
class Trainer:
    """What a rank needs for its steps, which are numbered from 1."""

    settings: Settings
    gang: Gang
    corpus: Corpus | None
    """Only the first and the last stage see tokens."""
    stages: Sequence[TrainedStage]
    executor: Executor
    meter: BusyMeter
    norm: GradientNorm | None
    """Where all stages update by the gradients of one iteration."""
    lateness: Lateness | None
    """Where stages update within a step."""
    activations: Sequence[ActivationMeter]
    """Of each stage."""

    @property
    def keeps_full(self) -> bool:
        """Whether steps run one into the other: where weights change within a step, and nothing else between steps.

        A pipeline whose stages all run the forwards of a step first has nothing to gain by that.
        """
        plan = self.settings.plan
        forwards_first = min(plan.window) >= max(2, plan.micro_batches)
        return plan.weight_rule != "flush" and plan.codec is None and not forwards_first

    def batch(self, step: int) -> Batch:
        """What a step learns from."""
        if self.corpus is None:
            return None, None
        plan, rank_plan = self.settings.plan, self.settings.rank_plan
        sequences, replica = plan.micro_batch * plan.micro_batches, self.settings.place.data_rank
        batch = self.corpus.batch(plan.seed, step, replica, sequences, plan.model.seq_len)
        inputs, targets = (tokens.to(self.gang.device) for tokens in batch)
        return inputs if rank_plan.has_first else None, targets if rank_plan.has_last else None

    def begin(self, step: int) -> None:
        """The pipeline is empty, and a step begins."""
        for stage in self.stages:
            self.set_rate(stage.index, step)
        if self.norm is not None:
            self.norm.begin()

    def set_rate(self, stage: int, step: int) -> None:
        """Let a stage of this rank learn as fast as it is to in a step."""
        plan = self.settings.plan
        rate = plan.learning_rate * rate_factor(plan.rate_schedule, step, plan.steps)
        next(each for each in self.stages if each.index == stage).set_learning_rate(rate)

    def end(self, losses: Sequence[Tensor]) -> float:
        """A step is over; its loss, the mean over micro-batches and replicas, on the rank of the last stage."""
        for stage in self.stages:
            if stage.codec is not None:
                stage.codec.step(self.gang, self.meter)
        if not losses:
            return 0.0
        loss = torch.stack(list(losses)).mean().reshape(1)
        self.gang.average([loss])
        return float(loss.item())

    def memory_account(self) -> str:
        """What the stages of this rank hold now, and what would fit."""
        plan, rank_plan = self.settings.plan, self.settings.rank_plan
        held = [
            figures(plan, stage.index, rank_plan, stage.module, stage.optimizer, meter, stage.left)
            for stage, meter in zip(self.stages, self.activations, strict=True)
        ]
        return account(plan, held, gpu_memory(self.gang.device))

    def checkpoint_tensors(self) -> dict[str, dict[str, Tensor]]:
        """What this rank has in a checkpoint, for each file."""
        return {name: file for stage in self.stages for name, file in stage.checkpoint_tensors().items()}
