"""The training loop of one rank: join the gang, go on from a checkpoint, step until the end or until asked."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from agents.worker.busy import BusyMeter
from agents.worker.causes import Cause, WorkerEndError
from agents.worker.checkpoint.folder import CheckpointFolder
from agents.worker.checkpoint.resuming import resume
from agents.worker.checkpoint.writer import CheckpointWriter
from agents.worker.data import Corpus, load_corpus
from agents.worker.executor.assembly import Executor, executor
from agents.worker.failures import memory_accounted
from agents.worker.gang import Gang, StopVote, join
from agents.worker.gradient_norm import GradientNorm
from agents.worker.learning_rate import rate_factor
from agents.worker.memory import ActivationMeter, account, figures, gpu_memory
from agents.worker.progress import Report
from agents.worker.settings import Settings
from agents.worker.stopping import StopRequest
from agents.worker.telling import StepTeller
from agents.worker.trained_stage import TrainedStage

CONNECTING_S = 30.0
"""Time to connect to one another, once all ranks have come."""
COPY_DOES_NOT_FIT = (
    "the copy of weights and optimizer state for a checkpoint does not fit into the memory of the host beside what is "
    "there: give the node more, or cut the model into more stages"
)


@dataclass(frozen=True, slots=True)
class Trainer:
    """One rank's stage with everything that trains it."""

    settings: Settings
    gang: Gang
    corpus: Corpus | None
    """Only the first and the last stage see tokens."""
    stages: Sequence[TrainedStage]
    executor: Executor
    meter: BusyMeter
    norm: GradientNorm | None
    """Where all stages update by the gradients of one iteration."""
    activations: Sequence[ActivationMeter]
    """Of each stage."""

    def step(self, step: int) -> float:
        """One iteration: all micro-batches, the mean over the replicas, the update. The loss, on the last stage."""
        plan, rank_plan = self.settings.plan, self.settings.rank_plan
        for stage in self.stages:
            stage.set_learning_rate(plan.learning_rate * rate_factor(plan.rate_schedule, step, plan.steps))
        inputs, targets = None, None
        if self.corpus is not None:
            sequences = plan.micro_batch * plan.micro_batches
            replica = self.settings.place.data_rank
            batch = self.corpus.batch(plan.seed, step, replica, sequences, plan.model.seq_len)
            inputs, targets = (tokens.to(self.gang.device) for tokens in batch)
        if self.norm is not None:
            self.norm.begin()
        losses = self.executor.step(
            inputs if rank_plan.has_first else None, targets if rank_plan.has_last else None
        )
        for stage in self.stages:
            if stage.codec is not None:
                stage.codec.step(self.gang, self.meter)
        if not losses:
            return 0.0
        loss = torch.stack(losses).mean().reshape(1)
        self.gang.average([loss])
        return float(loss.item())

    def memory_account(self) -> str:
        """What the stages of this rank hold now, and what would fit."""
        plan, caps = self.settings.plan, self.settings.rank_plan.caps
        held = [
            figures(plan, stage.index, caps[stage.index], stage.module, stage.optimizer, meter)
            for stage, meter in zip(self.stages, self.activations, strict=True)
        ]
        return account(plan, held, gpu_memory(self.gang.device))

    def checkpoint_tensors(self) -> dict[str, dict[str, Tensor]]:
        """What this rank has in a checkpoint, for each file."""
        return {name: file for stage in self.stages for name, file in stage.checkpoint_tensors().items()}


def train(settings: Settings, stop: StopRequest, report: Report) -> Cause:
    """Train to the plan's last step (`finished`) or until asked to stop (`stopped`).

    Raises WorkerEndError for every end that has a known cause, and RuntimeError for what torch tells.
    """
    place, plan = settings.place, settings.plan
    sees_tokens = settings.rank_plan.has_first or settings.rank_plan.has_last
    corpus = load_corpus(plan.corpus, plan.model.seq_len) if sees_tokens else None
    stop.expect_gang_within(settings.rendezvous_timeout_s + CONNECTING_S)
    gang = join(place, settings.rendezvous_timeout_s, settings.peer_timeout_s)
    stop.gang_complete()
    report.ready()

    if corpus is not None:
        _check_same_corpus(gang, corpus)
    folder = CheckpointFolder(settings.checkpoints, place.allocation_id)
    trainer, done = _prepare(settings, gang, corpus, folder, report)
    writer = CheckpointWriter(settings, gang, folder, corpus.digest if corpus else "", report)
    cause = _loop(trainer, done, StopVote(gang, stop), writer, report)
    writer.finish()
    trainer.meter.report_to(report, at_once=True)
    gang.barrier()  # nobody leaves while another may still need the store
    return cause


def _loop(trainer: Trainer, done: int, vote: StopVote, writer: CheckpointWriter, report: Report) -> Cause:
    place, plan = trainer.settings.place, trainer.settings.plan
    tokens = plan.micro_batch * plan.micro_batches * plan.model.seq_len * place.data_size
    reports = trainer.settings.rank_plan.has_last and place.data_rank == 0
    teller = StepTeller(report)
    trainer.meter.start()
    for step in range(done + 1, plan.steps + 1):
        writer.check()
        begin_s, computed_s = time.perf_counter(), trainer.meter.computed_s() if reports else 0.0
        vote.begin_step()
        with memory_accounted(trainer.memory_account):
            loss = trainer.step(step)
        stopping = vote.end_step()
        step_time_s = time.perf_counter() - begin_s
        if reports:
            teller.step(
                step,
                loss,
                step_time_s,
                tokens,
                grad_norm=trainer.norm.last() if trainer.norm is not None else None,
                compute_s=trainer.meter.computed_s() - computed_s,
                send_s=trainer.executor.sending_s,
            )
            print(f"step {step} of {plan.steps}: loss {loss:.4f}, {step_time_s:.3f} s", flush=True)
        trainer.meter.report_to(report)
        if stopping or step == plan.steps:
            teller.finish()
        if stopping or step % plan.checkpoint_every == 0 or step == plan.steps:
            with memory_accounted(lambda: COPY_DOES_NOT_FIT):
                writer.save(step, trainer.checkpoint_tensors())
        if stopping and step < plan.steps:
            return Cause.STOPPED
    return Cause.FINISHED


def _prepare(
    settings: Settings, gang: Gang, corpus: Corpus | None, folder: CheckpointFolder, report: Report
) -> tuple[Trainer, int]:
    """The trainer, and the step after which it goes on."""
    meter = BusyMeter(gang.device)
    stages = [TrainedStage.of(settings.plan, index, gang.device) for index in settings.rank_plan.stages]
    for stage in stages:
        meter.count_steps(stage.optimizer)
    done = resume(gang, folder, settings.plan, stages, report)
    # After that: a weight rule begins with the weights that it finds.
    norm = None
    if settings.plan.weight_rule == "flush":
        parameters = [parameter for stage in stages for parameter in stage.module.parameters()]
        rank_plan = settings.rank_plan
        teller = rank_plan.stage_ranks[rank_plan.last_stage]
        norm = GradientNorm(gang, teller, parameters, settings.plan.clip_norm)
    runs = executor(settings, gang, stages, meter, norm)
    last = settings.rank_plan.last_stage
    activations = [ActivationMeter(stage.computes, stage.index == last) for stage in stages]
    return Trainer(settings, gang, corpus, stages, runs, meter, norm, activations), done


def _check_same_corpus(gang: Gang, corpus: Corpus) -> None:
    """Inputs and targets come from two processes, perhaps in two regions: both must have read the same text."""
    leaders = gang.same_everywhere("corpus", corpus.digest)
    if leaders != corpus.digest:
        raise WorkerEndError(
            Cause.CORPUS_DIFFERS,
            f"run.corpus: the corpus of rank {gang.place.rank} ({corpus.digest[:12]}) is not that of rank 0 "
            f"({leaders[:12]}): give a file that is the same on every node, or the same Python version",
        )
