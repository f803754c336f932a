"""What a gang under a weight rule must come to, to the last bit: its stages in one process, and no messages."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from statistics import fmean

import torch
from torch import Tensor

from agents.protocol import WorkerPlan
from agents.worker.data import load_corpus
from agents.worker.executor.rank_plan import windowed
from agents.worker.executor.rules.choice import RuleChoice, weight_rule
from agents.worker.learning_rate import rate_factor
from agents.worker.model import cross_entropy
from agents.worker.study.serial import SerialPipeline
from agents.worker.trained_stage import TrainedStage


class Meeting:
    """The means of replicas that run as threads of this process."""

    def __init__(self, replicas: int) -> None:
        self._barrier = threading.Barrier(replicas, timeout=60.0)
        self._brought: list[Sequence[Tensor]] = [()] * replicas

    def average(self, replica: int, tensors: Sequence[Tensor]) -> None:
        self._brought[replica] = tensors
        self._barrier.wait()
        sums = [sum(parts[1:], start=parts[0]) for parts in zip(*self._brought, strict=True)]
        self._barrier.wait()
        for tensor, total in zip(tensors, sums, strict=True):
            tensor.copy_(total / len(self._brought))


class Replica:
    """One pipeline with a window, and the losses of its steps."""

    def __init__(self, plan: WorkerPlan, replica: int, meeting: Meeting) -> None:
        self._plan, self._replica = plan, replica
        self._corpus = load_corpus(plan.corpus, plan.model.seq_len)
        cpu = torch.device("cpu")
        self.stages = [TrainedStage.of(plan, index, cpu) for index in range(len(plan.window))]
        rules = []
        for stage in self.stages:
            self._keep_rate(stage)
            rule = weight_rule(
                RuleChoice(plan.weight_rule, plan.update_every, plan.error_feedback),
                [layer for _, layer in stage.module.named_layers()],
                stage.optimizer,
                lambda tensors: meeting.average(replica, tensors),
                micro_batches=plan.micro_batches,
                in_flight=plan.window[stage.index],
            )
            rules.append(rule)
        self._pipeline = SerialPipeline([stage.module for stage in self.stages], rules, cross_entropy)
        self.losses: list[float] = []

    def _keep_rate(self, stage: TrainedStage) -> None:
        """The rate of a step is that of its updates, and holds from the last of the step before."""
        plan, updates = self._plan, 0

        def set_rate(*_: object) -> None:
            nonlocal updates
            step = min(plan.steps, 1 + updates * plan.update_every // plan.micro_batches)
            stage.set_learning_rate(plan.learning_rate * rate_factor(plan.rate_schedule, step, plan.steps))
            updates += 1

        set_rate()
        stage.optimizer.register_step_post_hook(set_rate)

    def run(self, stretches: Sequence[int]) -> None:
        """So many steps each before the pipeline is empty."""
        plan = self._plan
        for steps in stretches:
            order = [
                windowed(stage, cap, steps * plan.micro_batches) for stage, cap in enumerate(plan.window)
            ]
            losses = self._pipeline.iteration(order, self._batch_after(len(self.losses)))
            for step in range(steps):
                self.losses.append(fmean(losses[step * plan.micro_batches :][: plan.micro_batches]))

    def _batch_after(self, done: int):  # type: ignore[no-untyped-def]
        plan = self._plan
        sequences = plan.micro_batch * plan.micro_batches

        def batch(number: int) -> tuple[Tensor, Tensor]:
            step, micro_batch = divmod(number, plan.micro_batches)
            whole = self._corpus.batch(
                plan.seed, done + step + 1, self._replica, sequences, plan.model.seq_len
            )
            inputs, targets = (tokens.split(plan.micro_batch)[micro_batch] for tokens in whole)
            return inputs, targets

        return batch


def serial(plan: WorkerPlan, stretches: Sequence[int], replicas: int = 1) -> tuple[list[float], Replica]:
    """(the loss of every step, the first replica) of a gang whose pipeline was empty after each of the stretches."""
    meeting = Meeting(replicas)
    pipelines = [Replica(plan, replica, meeting) for replica in range(replicas)]
    threads = [threading.Thread(target=each.run, args=(stretches,)) for each in pipelines[1:]]
    for thread in threads:
        thread.start()
    pipelines[0].run(stretches)
    for thread in threads:
        thread.join()
    return [fmean(losses) for losses in zip(*(each.losses for each in pipelines), strict=True)], pipelines[0]
