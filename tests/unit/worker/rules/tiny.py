"""A language model of four stages that takes milliseconds, and pipelines of it under each rule."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from agents.protocol import WorkerModel, WorkerPlan
from agents.worker.executor.rank_plan import Action, windowed
from agents.worker.executor.rules.choice import RuleChoice, weight_rule
from agents.worker.executor.weights import WeightRule
from agents.worker.model import cross_entropy
from agents.worker.optimizer import make_muon, make_optimizer
from agents.worker.randomness import generator_for
from agents.worker.stage import StageModule
from agents.worker.study.serial import SerialPipeline

MODEL = WorkerModel(layers=4, hidden=16, heads=2, kv_heads=2, head_dim=8, ffn=16, vocab=256, seq_len=8)
CPU = torch.device("cpu")
STRICT = (4, 3, 2, 1)
"""1F1B's caps on four stages."""

Make = Callable[[nn.Module], torch.optim.Optimizer]


def adamw(module: nn.Module) -> torch.optim.Optimizer:
    return make_optimizer(module, 0.01)


def muon(module: nn.Module) -> torch.optim.Optimizer:
    assert isinstance(module, StageModule)
    return make_muon(module.named_layers(), 0.01)


def sgd(module: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(module.parameters(), lr=0.1)


def alone(tensors: Sequence[Tensor]) -> None:
    """The mean over one replica."""


def stage_modules(cut: Sequence[int] = (1, 1, 1, 1)) -> list[StageModule]:
    plan = WorkerPlan(
        model=MODEL, steps=1, micro_batch=2, micro_batches=1, dtype="fp32", recompute="none",
        layers_per_stage=list(cut), window=[1] * len(cut), learning_rate=0.01, seed=0,
        checkpoint_uri="file:///x", checkpoint_every=1,
    )  # fmt: skip
    return [StageModule(plan, stage, CPU) for stage in range(len(cut))]


def batch(micro_batch: int) -> tuple[Tensor, Tensor]:
    tokens = torch.randint(256, (2, 9), generator=generator_for("tiny", micro_batch))
    return tokens[:, :-1], tokens[:, 1:]


def order_of(window: Sequence[int], micro_batches: int) -> list[tuple[Action, ...]]:
    return [windowed(stage, cap, micro_batches) for stage, cap in enumerate(window)]


@dataclass
class Trained:
    stages: list[StageModule]
    rules: list[WeightRule]
    losses: list[float]

    @property
    def weights(self) -> list[Tensor]:
        return [parameter.data for stage in self.stages for parameter in stage.parameters()]


def train(
    choice: RuleChoice,
    micro_batches: int,
    window: Sequence[int] = STRICT,
    make: Make = adamw,
    iterations: int = 1,
    order: Sequence[Sequence[Action]] | None = None,
    cut: Sequence[int] = (1, 1, 1, 1),
) -> Trained:
    """The four stages after some iterations; micro-batches are other ones in each."""
    stages = stage_modules(cut)
    rules = [
        weight_rule(
            choice,
            [layer for _, layer in stage.named_layers()],
            make(stage),
            alone,
            micro_batches=micro_batches,
            in_flight=cap,
        )
        for stage, cap in zip(stages, window, strict=True)
    ]
    pipeline = SerialPipeline(stages, rules, cross_entropy)
    losses: list[float] = []
    for iteration in range(iterations):
        first = iteration * micro_batches
        losses += pipeline.iteration(
            order or order_of(window, micro_batches), lambda each, first=first: batch(first + each)
        )
    return Trained(stages, rules, losses)


def largest_difference(first: Sequence[Tensor], second: Sequence[Tensor]) -> float:
    return max(float((one - other).abs().max()) for one, other in zip(first, second, strict=True))
