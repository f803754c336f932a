"""What the bounds of `staleness` speak for in a job that stands somewhere. It is told to people; nothing acts on it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from scheduler.pipeline.plan.setting import Setting
from scheduler.pipeline.plan.staleness import Advice, Budget, Training, advise
from scheduler.profile import Workload, in_flight_limit, profiles_of

UNKNOWN = (
    "These are orders of magnitude of a bound, not losses: it knows no link, no learning rate and no constant of the "
    "model, and its theorem does not cover PACI's mixed gradients. Nothing acts on it."
)


@dataclass(frozen=True, slots=True)
class JobAdvice:
    """How the stages of a job might agree on their weights, by the bounds of each way."""

    budget: Budget
    advice: Advice
    notes: tuple[str, ...]
    """What is to be known of it."""


def advise_job(setting: Setting, per_update: int) -> JobAdvice | None:
    """Compare for a job whose updates are of `per_update` micro-batches, in the time of those that it declares.

    Periodic averaging is of replicas of the whole model, one on the GPUs of each rank, which meet as often as the
    pipeline updates; it is left out where one is too large for that, or they would never meet. None for a single
    stage: there is nothing to wait for, and nothing is late.
    """
    if setting.ranks == 1:
        return None
    micro_batches = setting.spec.training.steps * setting.micro_batches
    fits = whole_model_fits(setting)
    replicas = setting.ranks if fits and micro_batches >= per_update * setting.ranks else 1
    budget = Budget(setting.ranks, micro_batches, per_update, replicas, local_steps=per_update)
    advice = advise(budget)
    return JobAdvice(budget, advice, tuple(_notes(advice, budget, fits)))


def whole_model_fits(setting: Setting) -> bool:
    """Whether the GPUs of every rank hold the whole model and one micro-batch of it."""
    work = Workload.of(setting.spec)
    return all(in_flight_limit(profiles_of(work, (gpu,))[0], gpu) >= 1 for gpu in set(setting.gpus))


def _notes(advice: Advice, budget: Budget, fits: bool) -> Iterator[str]:
    if Training.PERIODIC_AVERAGING in advice.bounds:
        yield "No worker of ours averages periodically; a command of your own may. It is taken to cost no time."
    elif not fits:
        yield "Periodic averaging is left out: a rank's GPUs do not hold the whole model."
    else:
        yield f"Periodic averaging is left out: {budget.stages} replicas would not meet once."
    yield (
        f"PACI is asked for by run.updates (rule: paci, every: {budget.per_update}) and changes what is learned; "
        "no policy chooses it."
    )
    yield UNKNOWN
