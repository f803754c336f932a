"""The training loop of one rank: join the gang, go on from a checkpoint, step until the end or until asked."""

from __future__ import annotations

import time

from agents.worker.busy import BusyMeter
from agents.worker.causes import Cause, WorkerEndError
from agents.worker.checkpoint.folder import CheckpointFolder
from agents.worker.checkpoint.resuming import resume
from agents.worker.checkpoint.writer import CheckpointWriter
from agents.worker.data import Corpus, load_corpus
from agents.worker.executor.assembly import executor
from agents.worker.failures import memory_accounted
from agents.worker.gang import Gang, StepVote, Verdict, join
from agents.worker.gradient_norm import GradientNorm
from agents.worker.lateness import Lateness
from agents.worker.lifelines import Lifelines
from agents.worker.memory import ActivationMeter
from agents.worker.progress import Report
from agents.worker.settings import Settings
from agents.worker.stopping import StopRequest
from agents.worker.stretch import Stretch
from agents.worker.telling import StepTeller
from agents.worker.trained_stage import TrainedStage
from agents.worker.trainer import Trainer

CONNECTING_S = 30.0
"""Time to connect to one another, once all ranks have come."""
COPY_DOES_NOT_FIT = (
    "the copy of weights and optimizer state for a checkpoint does not fit into the memory of the host beside what is "
    "there: give the node more, or cut the model into more stages"
)


def train(settings: Settings, stop: StopRequest, report: Report) -> Cause:
    """Train to the plan's last step (`finished`) or until asked to stop (`stopped`).

    Raises WorkerEndError for every end that has a known cause, and RuntimeError for what torch tells.
    """
    place, plan = settings.place, settings.plan
    sees_tokens = settings.rank_plan.has_first or settings.rank_plan.has_last
    corpus = load_corpus(plan.corpus, plan.model.seq_len) if sees_tokens else None
    stop.expect_gang_within(settings.rendezvous_timeout_s + CONNECTING_S)
    gang = join(place, settings.rendezvous_timeout_s, settings.peer_timeout_s)
    lifelines = Lifelines(gang)
    stop.gang_complete()
    report.ready()

    if corpus is not None:
        _check_same_corpus(gang, corpus)
    folder = CheckpointFolder(settings.checkpoints, place.allocation_id)
    trainer, done = _prepare(settings, gang, corpus, folder, report)
    writer = CheckpointWriter(settings, gang, folder, corpus.digest if corpus else "", report)
    cause = _loop(trainer, done, StepVote(gang, stop), writer, report)
    writer.finish()
    trainer.meter.report_to(report, at_once=True)
    lifelines.let_go()
    gang.barrier()  # nobody leaves while another may still need the store
    return cause


def _loop(trainer: Trainer, done: int, vote: StepVote, writer: CheckpointWriter, report: Report) -> Cause:
    plan = trainer.settings.plan
    told = _ToldSteps(trainer, writer, report)
    trainer.meter.start()
    while done < plan.steps:
        writer.check()
        told.begin()
        with memory_accounted(trainer.memory_account):
            stretch = Stretch(trainer, vote, done + 1, told.step)
            verdict = stretch.run()
        done = stretch.last
        if verdict is Verdict.STOP or done == plan.steps:
            told.finish()
        if verdict is Verdict.EMPTY:
            print(f"the pipeline was emptied after step {done}, as a stage had asked", flush=True)
        if verdict is Verdict.STOP or done % plan.checkpoint_every == 0 or done == plan.steps:
            with memory_accounted(lambda: COPY_DOES_NOT_FIT):
                writer.save(done, trainer.checkpoint_tensors())
        if verdict is Verdict.STOP and done < plan.steps:
            return Cause.STOPPED
    return Cause.FINISHED


class _ToldSteps:
    """Reports steps as they end on this rank."""

    def __init__(self, trainer: Trainer, writer: CheckpointWriter, report: Report) -> None:
        settings = trainer.settings
        plan, place = settings.plan, settings.place
        self._trainer, self._writer, self._report = trainer, writer, report
        self._steps = plan.steps
        self._tokens = plan.micro_batch * plan.micro_batches * plan.model.seq_len * place.data_size
        self._reports = settings.rank_plan.has_last and place.data_rank == 0
        self._teller = StepTeller(report)
        self._since_s = self._computed_s = 0.0

    def begin(self) -> None:
        """The pipeline is empty: the time of the next step counts from now."""
        self._since_s = time.perf_counter()
        self._computed_s = self._trainer.meter.computed_s() if self._reports else 0.0

    def step(self, step: int, loss: float) -> None:
        """A step is over. Its time counts from the end of the one before, or from `begin`."""
        self._writer.check()
        trainer = self._trainer
        late = trainer.lateness.step_ended() if trainer.lateness is not None else None
        if self._reports:
            step_time_s = time.perf_counter() - self._since_s
            self._teller.step(
                step,
                loss,
                step_time_s,
                self._tokens,
                grad_norm=trainer.norm.last() if trainer.norm is not None else None,
                compute_s=trainer.meter.computed_s() - self._computed_s,
                send_s=trainer.executor.sending_s,
                late=late,
            )
            print(f"step {step} of {self._steps}: loss {loss:.4f}, {step_time_s:.3f} s", flush=True)
        trainer.meter.report_to(self._report)
        self.begin()

    def finish(self) -> None:
        """Wait until all are told."""
        self._teller.finish()


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
    rank_plan = settings.rank_plan
    teller = rank_plan.stage_ranks[rank_plan.last_stage]
    norm = None
    if settings.plan.weight_rule == "flush":
        parameters = [parameter for stage in stages for parameter in stage.module.parameters()]
        norm = GradientNorm(gang, teller, parameters, settings.plan.clip_norm)
    runs = executor(settings, gang, stages, meter, norm)
    lateness = Lateness(gang, teller, runs.rules) if runs.rules else None
    last = rank_plan.last_stage
    activations = [ActivationMeter(stage.computes, has_loss=stage.index == last) for stage in stages]
    return Trainer(settings, gang, corpus, stages, runs, meter, norm, lateness, activations), done


def _check_same_corpus(gang: Gang, corpus: Corpus) -> None:
    """Inputs and targets come from two processes, perhaps in two regions: both must have read the same text."""
    leaders = gang.same_everywhere("corpus", corpus.digest)
    if leaders != corpus.digest:
        raise WorkerEndError(
            Cause.CORPUS_DIFFERS,
            f"run.corpus: the corpus of rank {gang.place.rank} ({corpus.digest[:12]}) is not that of rank 0 "
            f"({leaders[:12]}): give a file that is the same on every node, or the same Python version",
        )
