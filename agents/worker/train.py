"""The training loop of one rank: join the gang, go on from a checkpoint, step until the end or until asked."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from agents.worker.busy import BusyMeter
from agents.worker.causes import Cause, WorkerEndError
from agents.worker.checkpoint import CheckpointFolder
from agents.worker.codec.files import read_codec, write_codec
from agents.worker.codec.stage import CodedStage, message_example
from agents.worker.codec.training import CodecTraining
from agents.worker.data import Corpus, load_corpus
from agents.worker.gang import Gang, StopVote, join
from agents.worker.model import cross_entropy
from agents.worker.optimizer import make_optimizer
from agents.worker.progress import Report
from agents.worker.schedule import WindowedSchedule, pipeline_stage
from agents.worker.settings import Settings
from agents.worker.stage import StageModule
from agents.worker.stopping import StopRequest

CONNECTING_S = 30.0
"""Time to connect to one another, once all ranks have come."""


@dataclass(frozen=True, slots=True)
class Trainer:
    """One rank's stage with everything that trains it."""

    settings: Settings
    gang: Gang
    corpus: Corpus | None
    """Only the first and the last stage see tokens."""
    module: StageModule
    optimizer: torch.optim.AdamW
    codec: CodecTraining | None
    """Of the stage's boundaries, in a plan with a codec."""
    schedule: WindowedSchedule
    meter: BusyMeter

    def step(self, step: int) -> float:
        """One iteration: all micro-batches, the mean over the replicas, the update. The loss, on the last stage."""
        place, plan = self.settings.place, self.settings.plan
        losses: list[Tensor] = []
        if self.corpus is None:
            self.schedule.step(return_outputs=False)
        else:
            sequences = plan.micro_batch * plan.micro_batches
            batch = self.corpus.batch(plan.seed, step, place.data_rank, sequences, plan.model.seq_len)
            inputs, targets = (tokens.to(self.gang.device) for tokens in batch)
            self.schedule.step(
                *((inputs,) if place.is_first else ()),
                target=targets if place.is_last else None,
                losses=losses if place.is_last else None,
                return_outputs=False,
            )
        for _, layer in self.module.named_layers():
            self.gang.average(
                [parameter.grad for parameter in layer.parameters() if parameter.grad is not None]
            )
        with self.meter.computing():
            self.optimizer.step()
            self.optimizer.zero_grad()
        if self.codec is not None:
            self.codec.step(self.gang, self.meter)
        if not losses:
            return 0.0
        loss = torch.stack([loss.detach() for loss in losses]).mean().reshape(1)
        self.gang.average([loss])
        return float(loss.item())

    def save(self, step: int, folder: CheckpointFolder, report: Report) -> None:
        """Write a checkpoint together. Replicas are equal, so the first writes for all of them."""
        place, plan = self.settings.place, self.settings.plan
        if place.data_rank == 0:
            folder.write_stage(step, self.module, self.optimizer)
            if self.codec is not None:
                write_codec(folder, step, self.codec)
        self.gang.barrier()
        if place.leads:
            digest = self.corpus.digest if self.corpus else ""
            report.checkpoint(step, folder.publish(step, plan.model, plan.seed, digest))
            folder.tidy()


def train(settings: Settings, stop: StopRequest, report: Report) -> Cause:
    """Train to the plan's last step (`finished`) or until asked to stop (`stopped`).

    Raises WorkerEndError for every end that has a known cause, and RuntimeError for what torch tells.
    """
    place, plan = settings.place, settings.plan
    sees_tokens = place.is_first or place.is_last
    corpus = load_corpus(plan.corpus, plan.model.seq_len) if sees_tokens else None
    stop.expect_gang_within(settings.rendezvous_timeout_s + CONNECTING_S)
    gang = join(place, settings.rendezvous_timeout_s, settings.peer_timeout_s)
    stop.gang_complete()
    report.ready()

    folder = CheckpointFolder(settings.checkpoint_folder, place.allocation_id)
    done = int(_leaders_choice(gang, "resume", lambda: str(folder.choose(plan.resume_step, plan.model))))
    if corpus is not None:
        _check_same_corpus(gang, corpus)
    trainer = _prepare(settings, gang, corpus)
    if done:
        folder.read_stage(done, trainer.module, trainer.optimizer)
        if trainer.codec is not None:
            read_codec(folder, done, trainer.codec)
        print(f"resumed after step {done}", flush=True)
    cause = _loop(trainer, done, StopVote(gang, stop), folder, report)
    trainer.meter.report_to(report, at_once=True)
    gang.barrier()  # nobody leaves while another may still need the store
    return cause


def _loop(trainer: Trainer, done: int, vote: StopVote, folder: CheckpointFolder, report: Report) -> Cause:
    place, plan = trainer.settings.place, trainer.settings.plan
    tokens = plan.micro_batch * plan.micro_batches * plan.model.seq_len * place.data_size
    trainer.meter.start()
    for step in range(done + 1, plan.steps + 1):
        begin_s = time.perf_counter()
        vote.begin_step()
        loss = trainer.step(step)
        stopping = vote.end_step()
        step_time_s = time.perf_counter() - begin_s
        if place.is_last and place.data_rank == 0:
            report.step(step, loss, step_time_s, tokens)
            print(f"step {step} of {plan.steps}: loss {loss:.4f}, {step_time_s:.3f} s", flush=True)
        trainer.meter.report_to(report)
        if stopping or step % plan.checkpoint_every == 0 or step == plan.steps:
            trainer.save(step, folder, report)
        if stopping and step < plan.steps:
            return Cause.STOPPED
    return Cause.FINISHED


def _prepare(settings: Settings, gang: Gang, corpus: Corpus | None) -> Trainer:
    place, plan = settings.place, settings.plan
    meter = BusyMeter(gang.device)
    module = StageModule(plan, place.stage, gang.device)
    coded, codec = None, None
    if plan.codec is not None:
        coded = CodedStage(plan, plan.codec, place.stage, module, gang.device)
        codec = CodecTraining(coded, plan.learning_rate)
    tokens = torch.zeros(plan.micro_batch, plan.model.seq_len, dtype=torch.int64, device=gang.device)
    takes = (tokens,) if place.is_first else message_example(plan, place.stage - 1, gang.device)
    gives = message_example(plan, place.stage, gang.device)
    stage = pipeline_stage(coded or module, place.stage, place.stages, takes, gives, gang.pipeline, meter)

    def metered_loss(logits: Tensor, targets: Tensor) -> Tensor:
        with meter.computing():
            return cross_entropy(logits, targets)

    schedule = WindowedSchedule(stage, plan.window, plan.micro_batches, metered_loss)
    optimizer = make_optimizer(module, plan.learning_rate)
    return Trainer(settings, gang, corpus, module, optimizer, codec, schedule, meter)


def _leaders_choice(gang: Gang, name: str, choose: Callable[[], str]) -> str:
    """What rank 0 chooses. Where it can choose nothing it ends, and the others end as they lose it."""
    return gang.same_everywhere(name, choose() if gang.place.leads else "")


def _check_same_corpus(gang: Gang, corpus: Corpus) -> None:
    """Inputs and targets come from two processes, perhaps in two regions: both must have read the same text."""
    leaders = gang.same_everywhere("corpus", corpus.digest)
    if leaders != corpus.digest:
        raise WorkerEndError(
            Cause.CORPUS_DIFFERS,
            f"run.corpus: the corpus of rank {gang.place.rank} ({corpus.digest[:12]}) is not that of rank 0 "
            f"({leaders[:12]}): give a file that is the same on every node, or the same Python version",
        )
