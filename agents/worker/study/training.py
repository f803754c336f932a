"""Trains one case of the study from one seed, and says how good the weights are that come of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

import torch
from torch import Tensor

from agents.protocol import WorkerModel, WorkerPlan, WorkerRateSchedule
from agents.worker.data import Corpus
from agents.worker.executor.rank_plan import windowed
from agents.worker.executor.rules.choice import weight_rule
from agents.worker.executor.weights import WeightRule
from agents.worker.learning_rate import rate_factor
from agents.worker.model import cross_entropy
from agents.worker.optimizer import make_muon, make_optimizer
from agents.worker.stage import StageModule
from agents.worker.study.cases import LAYERS, SEQUENCES, Case
from agents.worker.study.serial import Batch, SerialPipeline
from agents.worker.study.watched import Watched

MODEL = WorkerModel(
    layers=LAYERS, hidden=48, heads=4, kv_heads=4, head_dim=12, ffn=128, vocab=256, seq_len=32
)
RATE = WorkerRateSchedule(warmup_steps=25)
HELD_OUT_SEQUENCES = 512
CPU = torch.device("cpu")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run has come to."""

    case: str
    seed: int
    updates: int
    learning_rate: float
    loss: float
    """Of the last weights on sequences that no update has seen, nats a token."""
    drift: int
    prediction_ratio: float
    """Mean of `Watched.ratios` over the second half of the run, on the first stage; 1 without a prediction."""


def train_case(case: Case, seed: int, updates: int, learning_rate: float, corpus: Corpus) -> Outcome:
    """One run. The same arguments give the same outcome, on the same machine."""
    stages = _stages(case, seed, learning_rate)
    per_iteration = case.micro_batches_an_iteration(updates)
    rules = [
        Watched(_rule(case, stage, learning_rate, updates, cap), list(stage.parameters()))
        for stage, cap in zip(stages, case.window, strict=True)
    ]
    pipeline = SerialPipeline(stages, rules, cross_entropy)
    order = [windowed(stage, cap, per_iteration) for stage, cap in enumerate(case.window)]
    done = 0
    while done < updates:
        pipeline.iteration(order, _batches(case, seed, done, corpus))
        done += per_iteration // case.micro_batches
    ratios = rules[0].ratios
    return Outcome(
        case=case.name,
        seed=seed,
        updates=updates,
        learning_rate=learning_rate,
        loss=_held_out_loss(stages, seed, corpus),
        drift=max(rule.drift for rule in rules),
        prediction_ratio=fmean(ratios[len(ratios) // 2 :]) if ratios else 1.0,
    )


def _stages(case: Case, seed: int, learning_rate: float) -> list[StageModule]:
    stages = len(case.window)
    plan = WorkerPlan(
        model=MODEL,
        steps=1,
        micro_batch=SEQUENCES // case.micro_batches,
        micro_batches=case.micro_batches,
        dtype="fp32",
        recompute="none",
        layers_per_stage=[LAYERS // stages] * stages,
        window=list(case.window),
        learning_rate=learning_rate,
        seed=seed,
        checkpoint_uri="file:///nowhere",
        checkpoint_every=1,
    )
    return [StageModule(plan, stage, CPU) for stage in range(stages)]


def _rule(case: Case, stage: StageModule, learning_rate: float, updates: int, cap: int) -> WeightRule:
    layers = [layer for _, layer in stage.named_layers()]
    optimizer = (
        make_muon(stage.named_layers(), learning_rate)
        if case.optimizer == "muon"
        else make_optimizer(stage, learning_rate)
    )
    _warm_up(optimizer, learning_rate, updates)
    micro_batches = case.micro_batches_an_iteration(updates)
    return weight_rule(case.rule, layers, optimizer, _alone, micro_batches=micro_batches, in_flight=cap)


def _warm_up(optimizer: torch.optim.Optimizer, learning_rate: float, updates: int) -> None:
    """Let the learning rate grow over the first updates, whose late gradients would all point the same way."""
    steps = 0

    def set_rate(*_: object) -> None:
        nonlocal steps
        steps += 1
        for group in optimizer.param_groups:
            group["lr"] = learning_rate * rate_factor(RATE, steps, updates)

    optimizer.register_step_pre_hook(set_rate)


def _alone(tensors: Sequence[Tensor]) -> None:
    """The mean over one replica."""


def _batches(case: Case, seed: int, first_update: int, corpus: Corpus) -> Batch:
    """Micro-batches of the updates from `first_update` on; how many make an update does not change its sequences."""
    size = SEQUENCES // case.micro_batches

    def batch(micro_batch: int) -> tuple[Tensor, Tensor]:
        update, within = divmod(micro_batch, case.micro_batches)
        inputs, targets = corpus.batch(seed, first_update + update, 0, SEQUENCES, MODEL.seq_len)
        part = slice(size * within, size * within + size)
        return inputs[part], targets[part]

    return batch


def _held_out_loss(stages: Sequence[StageModule], seed: int, corpus: Corpus) -> float:
    """Windows of a replica that no run has: the corpus is so long that training has hardly seen any of them."""
    x, targets = corpus.batch(seed, 0, 1, HELD_OUT_SEQUENCES, MODEL.seq_len)
    with torch.no_grad():
        for stage in stages:
            x = stage(x)
        return float(cross_entropy(x, targets).item())
