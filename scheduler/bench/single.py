"""Grid O: one region at one price. What is left of a policy where there is no choice of region, link or hour?

The jobs of Helios and of Philly (4 GPUs and more) on as many GPUs as make the offered load 0.85, at least those of the
largest job. They are taken in three ways: rigid, on the stages that they name and never stopped, as batch schedulers
know them, so that EASY backfill is the original; moldable, on stages chosen at their start; and resized as elsewhere.
A draw is a part of the trace, in turn, and an estimate of every job's length. Philly is held out as a whole.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Literal

from scheduler.bench.figures import named_gpus, offered_load
from scheduler.bench.sources import Sources
from scheduler.bench.worlds import USUAL, Conduct, Split, World
from scheduler.cluster import Cluster, Pool
from scheduler.errors import InvalidValueError
from scheduler.job import Elasticity
from scheduler.price import PriceSeries
from scheduler.replay.jobs import ReplayJob
from scheduler.replay.trace_rule import traced_job
from scheduler.replay.traces import TraceRow, read_trace
from scheduler.spec.scenario import Scenario

Trace = Literal["helios", "philly"]

LOAD: Final = 0.85
_FILES: Final = {"helios": "helios_venus_2vc", "philly": "philly_ge4gpu"}
_LIKE: Final = "real12-helios"
"""The scenario whose GPUs, first region and defaults are taken."""
_PARTS: Final = 4
_WARM_UP: Final = 0.1
_USD_PER_KWH: Final = 0.1
_NEVER_STOPPED: Final = replace(USUAL, elasticity=Elasticity.NONE)


@dataclass(frozen=True, slots=True)
class SingleCell:
    """A trace on one region. `rigid`: jobs run on the stages that they name."""

    split: Split
    trace: Trace
    conduct: Conduct = USUAL
    rigid: bool = False
    draws: int = 8
    grid: str = "O"

    @property
    def name(self) -> str:
        """The trace, and how its jobs are taken."""
        return f"{self.trace}{' rigid' if self.rigid else ''}{self.conduct.name}"

    def world(self, draw: int, sources: Sources) -> World:
        """One part of the trace."""
        rows = read_trace(sources.trace(_FILES[self.trace]))
        first, last = (len(rows) * (draw % _PARTS + edge) // _PARTS for edge in (0, 1))
        return self.world_of(rows[first:last], self.split.entropy + 2 * draw, sources)

    def world_of(self, rows: tuple[TraceRow, ...], seed: int, sources: Sources) -> World:
        """These jobs, on a region of their size; the seed draws what they declare."""
        scenario = replace(sources.scenario(_LIKE), name=f"{self.grid} {self.name}")
        scenario = replace(
            scenario,
            training=scenario.training.model_copy(update={"schedule": self.conduct.schedule}),
            truth=self.conduct.truth(seed),
        )
        rows = tuple(replace(row, submit_s=row.submit_s - rows[0].submit_s) for row in rows)
        scenario = _on_one_region(scenario, _gpus_for(scenario, rows))
        jobs = tuple(self._job(row, scenario, seed) for row in rows)
        return World(scenario, jobs, measured_from_s=_WARM_UP * jobs[-1].submit_s)

    def _job(self, row: TraceRow, scenario: Scenario, seed: int) -> ReplayJob:
        job = _traced(row, scenario, self.conduct.elasticity)
        if self.rigid:
            named = job.spec.parallelism.named_stages
            fixed = replace(job.spec.parallelism, stages_min=named, stages_max=named)
            job = replace(job, spec=replace(job.spec, parallelism=fixed))
        return self.conduct.declared(job, seed)


def single_cells(split: Split) -> tuple[SingleCell, ...]:
    """Every trace of the split in all three ways."""
    traces: tuple[Trace, ...] = ("helios",) if split is Split.TUNING else ("helios", "philly")
    return tuple(
        cell
        for trace in traces
        for cell in (
            SingleCell(split, trace),
            SingleCell(split, trace, _NEVER_STOPPED),
            SingleCell(split, trace, _NEVER_STOPPED, rigid=True),
        )
    )


def _gpus_for(scenario: Scenario, rows: tuple[TraceRow, ...]) -> int:
    """So many GPUs that the jobs offer a load of 0.85."""
    some = _on_one_region(scenario, max(row.gpus for row in rows))
    jobs = tuple(_traced(row, some, Elasticity.NONE) for row in rows)
    load = offered_load(World(some, jobs))
    if load is None:
        raise InvalidValueError("trace", len(rows), "jobs that come one after the other")
    (pool,) = some.cluster.pools.values()
    return max(round(pool.gpus * load / LOAD), *(named_gpus(job) for job in jobs))


def _on_one_region(scenario: Scenario, gpus: int) -> Scenario:
    """The same with nothing but its first pool, of this size, at a flat price."""
    cluster = scenario.cluster
    region, gpu_type = min(cluster.pools)
    alone = Cluster(
        cluster.gpu_types,
        {region: cluster.regions[region]},
        {(region, gpu_type): Pool(region, gpu_type, gpus)},
        {},
        restart=cluster.restart,
    )
    return replace(scenario, cluster=alone, electricity={region: PriceSeries.flat(_USD_PER_KWH)})


def _traced(row: TraceRow, scenario: Scenario, elasticity: Elasticity) -> ReplayJob:
    return traced_job(row, scenario.cluster, scenario.training, elasticity, scenario.start_s, arrivals=1.0)
