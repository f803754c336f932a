"""What stale weights cost in convergence, by the bound for PipeDream, and what that speaks for.

Ilin and Richtárik, arXiv 2606.03498, Theorem 4.1: after U block updates of S blocks with step γ and delays of at most
δ block updates, the mean squared gradient is at most

    2·S·Δ₀/(γU)  +  γ·S·L·G²  +  γ²·L²·δ²·G²
    (distance)      (noise)      (staleness)

with Δ₀ the loss to be lost, L the smoothness and G the size of gradients. Periodic averaging of R replicas after every
H steps has 2·Δ₀/(γT) + γ·L·G²/R + γ²·L²·H²·G² in T steps of each, which with R = S is the paper's O(√(S/K) + S³H²/K).
All are taken at the γ that is best for them, with Δ₀ = L = G = 1: they compare orders of magnitude, and know neither
links nor memory. A bound is not a prediction; on a language model the paper's own runs favour PipeDream over averaging.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from scheduler.errors import InvalidValueError
from scheduler.pipeline.plan.delays import longest_delay


class Training(StrEnum):
    """How replicas and stages agree on their weights."""

    SYNCHRONOUS = "synchronous"
    """A flush before every update."""
    PACI = "paci"
    """No flush; each stage updates by itself after every few of its backwards (arXiv 2606.07881)."""
    PERIODIC_AVERAGING = "periodic-averaging"
    """Replicas train by themselves and average their weights now and then (LocalSGD)."""


@dataclass(frozen=True, slots=True)
class Bound:
    """The terms of the bound at its best step size."""

    step_size: float
    distance: float
    noise: float
    staleness: float

    @property
    def total(self) -> float:
        return self.distance + self.noise + self.staleness


@dataclass(frozen=True, slots=True)
class Budget:
    """What is compared: pipelines of `stages` stages, in the time of `micro_batches` of them without bubbles.

    A synchronous or PACI update is of `per_update` micro-batches. Where there are several `replicas`, they share the
    micro-batches and average after `local_steps` of their own.
    """

    stages: int
    micro_batches: int
    per_update: int
    replicas: int = 1
    local_steps: int = 1

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if getattr(self, name) < 1:
                raise InvalidValueError(f"budget.{name}", getattr(self, name), "1 or more")
        if self.micro_batches < self.per_update * self.replicas:
            raise InvalidValueError(
                "budget.micro_batches",
                self.micro_batches,
                f"at least an update, {self.per_update} × {self.replicas}",
            )


@dataclass(frozen=True, slots=True)
class Advice:
    """The way with the lowest bound, the bounds of all that are possible, and a sentence for each."""

    training: Training
    bounds: dict[Training, Bound]
    reasons: tuple[str, ...]


def advise(budget: Budget) -> Advice:
    """Compare the ways to train by their bounds; periodic averaging only where there are several replicas."""
    bounds = {Training.SYNCHRONOUS: synchronous(budget), Training.PACI: paci(budget)}
    if budget.replicas > 1:
        bounds[Training.PERIODIC_AVERAGING] = periodic_averaging(budget)
    best = min(bounds, key=lambda training: bounds[training].total)
    reasons = tuple(_reason(training, bound, budget) for training, bound in bounds.items())
    return Advice(best, bounds, reasons)


def synchronous(budget: Budget) -> Bound:
    """No delay, but of M micro-batches' time M / (M + S − 1) is used: each flush costs the bubble of 1F1B."""
    used = budget.per_update / (budget.per_update + budget.stages - 1)
    updates = used * budget.micro_batches / budget.per_update
    return tightest(2 / updates, budget.stages, 0.0)


def paci(budget: Budget) -> Bound:
    """All time is used. An update after every a backwards makes a-th as many block updates, and so a-th the delay.

    The theorem is for gradients at one mixture of weights; PACI's activations and backwards see two of them, up to
    its drift apart, which it does not cover.
    """
    updates = budget.micro_batches / budget.per_update
    return tightest(2 / updates, budget.stages, (longest_delay(budget.stages) / budget.per_update) ** 2)


def pipedream(budget: Budget) -> Bound:
    """An update after every backward: the delay of S² − S/2 block updates in full, a staleness that grows with S⁴."""
    return tightest(2 / budget.micro_batches, budget.stages, float(longest_delay(budget.stages) ** 2))


def periodic_averaging(budget: Budget) -> Bound:
    """Replicas without delay inside, which drift apart for H steps."""
    steps = budget.micro_batches / budget.replicas
    return tightest(2 / steps, 1 / budget.replicas, float(budget.local_steps**2))


def tightest(distance: float, noise: float, staleness: float) -> Bound:
    """The lowest distance/γ + noise·γ + staleness·γ² over γ: where 2·staleness·γ³ + noise·γ² = distance."""
    low, high = 0.0, (distance / noise) ** 0.5  # the best γ of fresh weights; staleness makes it smaller
    for _ in range(100):
        middle = (low + high) / 2
        if 2 * staleness * middle**3 + noise * middle**2 > distance:
            high = middle
        else:
            low = middle
    return Bound(high, distance / high, noise * high, staleness * high**2)


def _reason(training: Training, bound: Bound, budget: Budget) -> str:
    terms = (
        f"bound {bound.total:.2g} = distance {bound.distance:.2g} + noise {bound.noise:.2g} "
        f"+ staleness {bound.staleness:.2g}"
    )
    match training:
        case Training.SYNCHRONOUS:
            idle = (budget.stages - 1) / (budget.per_update + budget.stages - 1)
            why = f"no delay, {idle:.0%} of the time in the bubble of each flush"
        case Training.PACI:
            delay = longest_delay(budget.stages) / budget.per_update
            why = f"no bubble, weights up to {delay:.3g} block updates late"
        case Training.PERIODIC_AVERAGING:
            why = (
                f"{budget.replicas} replicas apart for {budget.local_steps} steps, without a pipeline's delay"
            )
    return f"{training}: {terms}: {why}"
