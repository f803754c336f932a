"""The executor that a plan asks for: torch's runtime for strict synchronous plans, ours for all others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from agents.worker.busy import BusyMeter
from agents.worker.causes import Cause, WorkerEndError
from agents.worker.codec.stage import message_example
from agents.worker.executor.messages import Messages
from agents.worker.executor.pipeline import PipelineExecutor
from agents.worker.executor.rules.choice import RuleChoice, weight_rule
from agents.worker.executor.rules.rhythm import Rhythm
from agents.worker.executor.stage_work import StageWork
from agents.worker.executor.steps import Steps
from agents.worker.executor.weights import WeightRule
from agents.worker.gang import Gang
from agents.worker.gradient_norm import GradientNorm
from agents.worker.model import cross_entropy
from agents.worker.schedule import TorchExecutor, pipeline_stage
from agents.worker.settings import Settings
from agents.worker.trained_stage import TrainedStage


class Executor(Protocol):
    """Runs the steps of one rank."""

    sending_s: float | None
    """When the pipeline was emptied: from the end of the last backward until all that was sent had left. None before,
    and on a GPU."""
    rules: Sequence[Rhythm]
    """Of the stages of this rank, where they update within a step."""

    def run(self, steps: Steps) -> None:
        """As `PipelineExecutor.run`."""


def executor(
    settings: Settings,
    gang: Gang,
    stages: Sequence[TrainedStage],
    meter: BusyMeter,
    norm: GradientNorm | None,
) -> Executor:
    """What runs `stages`, those of this rank. `norm` measures their mean gradients before an iteration's update."""
    assemble = on_torch if settings.rank_plan.for_torch else on_ours
    return assemble(settings, gang, stages, meter, norm)


def on_torch(
    settings: Settings,
    gang: Gang,
    stages: Sequence[TrainedStage],
    meter: BusyMeter,
    norm: GradientNorm | None,
) -> TorchExecutor:
    """torch's runtime, for a plan that is `for_torch`."""
    plan = settings.plan
    count = len(plan.layers_per_stage)
    tokens = torch.zeros(plan.micro_batch, plan.model.seq_len, dtype=torch.int64, device=gang.device)

    def loss(logits: Tensor, targets: Tensor) -> Tensor:
        with meter.computing():
            return cross_entropy(logits, targets)

    def update() -> None:
        for stage in stages:
            stage.average_gradients(gang.average)
        if norm is not None:
            norm.measure()
        for stage in stages:
            stage.optimizer.step()
            stage.optimizer.zero_grad()

    runtime_stages = []
    for stage in stages:
        takes = (tokens,) if stage.index == 0 else message_example(plan, stage.index - 1, gang.device)
        gives = message_example(plan, stage.index, gang.device)
        runtime_stages.append(
            pipeline_stage(stage.computes, stage.index, count, takes, gives, gang.pipeline, meter, stage.left)
        )
    return TorchExecutor(runtime_stages, settings.rank_plan, loss, update, meter)


def on_ours(
    settings: Settings,
    gang: Gang,
    stages: Sequence[TrainedStage],
    meter: BusyMeter,
    norm: GradientNorm | None,
) -> PipelineExecutor:
    """Our own executor, for any plan."""
    plan, rank_plan = settings.plan, settings.rank_plan
    work = {}
    for stage in stages:
        rule = _rule(settings, gang, stage)
        loss = cross_entropy if stage.index == rank_plan.last_stage else None
        beside = (
            () if stage.codec is None else [each for end in stage.codec.ends for each in end.parameters()]
        )
        work[stage.index] = StageWork(stage.computes, loss, rule, meter, stage.left, beside)
    given = {
        index: message_example(plan, index, gang.device)
        for stage in stages
        for index in (stage.index - 1, stage.index)
        if 0 <= index < rank_plan.last_stage
    }
    return PipelineExecutor(rank_plan, work, Messages(gang.pipeline, rank_plan, given), norm, meter)


def _rule(settings: Settings, gang: Gang, stage: TrainedStage) -> WeightRule:
    plan = settings.plan

    def taken_back(line: str) -> None:
        print(line, flush=True)
        gang.ask_to_empty()

    try:
        return weight_rule(
            RuleChoice(plan.weight_rule, plan.update_every, plan.error_feedback),
            [layer for _, layer in stage.module.named_layers()],
            stage.optimizer,
            gang.average,
            micro_batches=plan.micro_batches,
            in_flight=settings.rank_plan.caps[stage.index],
            tell=taken_back,
        )
    except ValueError as error:
        raise WorkerEndError(
            Cause.INVALID_PLAN, f"BACE_PLAN: weight_rule {plan.weight_rule}: {error}"
        ) from error
