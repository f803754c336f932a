"""A job as people look at it: its row, with its chain, what it reported and what it cost."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from service import causes
from service.db.records import AllocationRecord, JobRecord, PromiseRecord
from service.db.repositories import allocations, ledger, promises, step_series
from service.db.repositories.ledger import Spent
from service.db.repositories.step_series import Ends
from service.db.scope import EVERYTHING
from service.db.session import Session
from service.throughput import model_flops_utilisation, tokens_per_s

_NO_STEPS = Ends(None, None, None, None, None, None, None)


@dataclass(frozen=True, slots=True)
class ChainPart:
    """Consecutive stages in one pool; neighbouring segments of one pool are one part."""

    region: str
    gpu_type: str
    stages: int
    gpus: int


@dataclass(frozen=True, slots=True)
class AllocationView:
    """An allocation with its chain and the name of its job."""

    allocation: AllocationRecord
    job_name: str
    chain: tuple[ChainPart, ...]
    gpus: int


@dataclass(frozen=True, slots=True)
class PromiseView:
    """Where a job goes on once what it needs has been left, with its chain."""

    promise: PromiseRecord
    chain: tuple[ChainPart, ...]
    gpus: int


@dataclass(slots=True)
class SpentView:
    """USD by kind."""

    electricity: float = 0.0
    egress: float = 0.0
    rent: float = 0.0

    @property
    def total(self) -> float:
        return self.electricity + self.egress + self.rent

    def add(self, kind: str, amount_usd: float) -> None:
        """Kinds that are not money (carbon) are left out."""
        if kind in ("electricity", "egress", "rent"):
            setattr(self, kind, getattr(self, kind) + amount_usd)


@dataclass(slots=True)
class CostView(SpentView):
    """The sum, and its parts by region."""

    by_region: dict[str, SpentView] = field(default_factory=dict)
    unpriced_entries: int = 0


@dataclass(slots=True)
class EnergyView:
    """kWh after PUE."""

    by_region: dict[str, float] = field(default_factory=dict)

    @property
    def total(self) -> float:
        return sum(self.by_region.values(), 0.0)


@dataclass(frozen=True, slots=True)
class JobView:
    """Everything that is told of a job."""

    job: JobRecord
    allocations: tuple[AllocationView, ...]
    promised: PromiseView | None
    measured_iteration_s: float | None
    first_loss: float | None
    last_loss: float | None
    last_grad_norm: float | None
    drift: int | None
    drift_bound: int | None
    rolled_back: int | None
    queueing_s: float | None
    jct_s: float | None
    energy_kwh: EnergyView
    cost_usd: CostView

    def stopped_by(self, cause: str) -> int:
        """How many of its generations were stopped for that."""
        return sum(view.allocation.stop_cause == cause for view in self.allocations)

    @property
    def tokens_per_s(self) -> float | None:
        """Over all data replicas, by the measured iteration."""
        return (
            None if not self.measured_iteration_s else tokens_per_s(self.job.spec, self.measured_iteration_s)
        )

    @property
    def mfu(self) -> float | None:
        """Model FLOPs utilisation of the GPUs of its last generation."""
        if not self.measured_iteration_s or not self.allocations:
            return None
        gpus = [(part.gpu_type, part.gpus) for part in self.allocations[-1].chain]
        return model_flops_utilisation(self.job.spec, gpus, self.measured_iteration_s)

    @property
    def preemptions(self) -> int:
        """How often a plan made it wait again."""
        return self.stopped_by(causes.PREEMPTED)

    @property
    def moves(self) -> int:
        """How often a plan gave it another place."""
        return self.stopped_by(causes.MOVED)


def view_jobs(session: Session, records: Sequence[JobRecord], now_s: float) -> list[JobView]:
    """Views of jobs that the caller may see, in the same order."""
    ids = [record.job_id for record in records]
    generations: dict[str, list[AllocationRecord]] = defaultdict(list)
    for allocation in allocations.of_jobs(session, EVERYTHING, ids):
        generations[allocation.job_id].append(allocation)
    spent: dict[str, list[Spent]] = defaultdict(list)
    for entry in ledger.spent_by_jobs(session, ids):
        spent[entry.job_id].append(entry)
    promised = promises.of_jobs(session, ids)
    reporting = [record.job_id for record in records if record.reported_steps]
    ends = step_series.ends(session, reporting)
    return [
        _view(
            record,
            generations[record.job_id],
            promised.get(record.job_id),
            spent[record.job_id],
            ends.get(record.job_id, _NO_STEPS),
            now_s,
        )
        for record in records
    ]


def view_new_job(record: JobRecord) -> JobView:
    """The view of a job that has just been stored: nothing has happened to it yet."""
    energy, cost = _spent(())
    return JobView(record, (), None, None, None, None, None, None, None, None, 0.0, None, energy, cost)


def view_allocation(allocation: AllocationRecord, job_name: str) -> AllocationView:
    """An allocation with its chain."""
    chain = chain_of(allocation.placement)
    return AllocationView(allocation, job_name, chain, sum(part.gpus for part in chain))


def _promised(promise: PromiseRecord) -> PromiseView:
    chain = chain_of(promise.placement)
    return PromiseView(promise, chain, sum(part.gpus for part in chain))


def chain_of(placement: dict[str, Any]) -> tuple[ChainPart, ...]:
    """The chain of a placement document, in pipeline order."""
    parts: list[ChainPart] = []
    for segment in placement["segments"]:
        part = ChainPart(
            region=segment["region"],
            gpu_type=segment["gpu_type"],
            stages=segment["stages"],
            gpus=segment["stages"] * segment["gpus_per_stage"],
        )
        last = parts[-1] if parts else None
        if last is not None and (last.region, last.gpu_type) == (part.region, part.gpu_type):
            part = ChainPart(part.region, part.gpu_type, last.stages + part.stages, last.gpus + part.gpus)
            parts.pop()
        parts.append(part)
    return tuple(parts)


def _view(
    job: JobRecord,
    generations: Sequence[AllocationRecord],
    promised: PromiseRecord | None,
    spent: Sequence[Spent],
    ends: Ends,
    now_s: float,
) -> JobView:
    started = job.first_started_at_s
    waited_until = started if started is not None else (job.finished_at_s or now_s)
    energy, cost = _spent(spent)
    return JobView(
        job=job,
        allocations=tuple(view_allocation(allocation, job.name) for allocation in generations),
        promised=None if promised is None else _promised(promised),
        measured_iteration_s=ends.iteration_s,
        first_loss=ends.first_loss,
        last_loss=ends.last_loss,
        last_grad_norm=ends.last_grad_norm,
        drift=ends.drift,
        drift_bound=ends.drift_bound,
        rolled_back=ends.rolled_back,
        queueing_s=max(0.0, waited_until - job.submitted_at_s),
        jct_s=None if job.finished_at_s is None else max(0.0, job.finished_at_s - job.submitted_at_s),
        energy_kwh=energy,
        cost_usd=cost,
    )


def _spent(entries: Sequence[Spent]) -> tuple[EnergyView, CostView]:
    energy, cost = EnergyView(), CostView()
    for entry in entries:
        if entry.kind == "electricity":
            energy.by_region[entry.region] = energy.by_region.get(entry.region, 0.0) + entry.quantity
        cost.add(entry.kind, entry.amount_usd)
        cost.by_region.setdefault(entry.region, SpentView()).add(entry.kind, entry.amount_usd)
        cost.unpriced_entries += entry.unpriced
    return energy, cost
