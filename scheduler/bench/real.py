"""Grid R: twelve real regions with hourly prices of 2023, measured links, and jobs as they were traced.

The scenarios are those of the data folder (Kalos at one, five and ten times its arrivals, Helios at one and one and a
half), and Philly's jobs of 4 GPUs and more on a quarter of the same GPUs, with arrivals so dense that the offered
load is 0.85. Each stands once with the list price of egress and once as an owned backbone (egress 0).

A trace is one draw of the jobs, so a draw of a cell is a window: a start in the year of prices and a permutation of
the pools over the regions (the first five keep them where they are). Philly is long enough to be cut: its windows take
a quarter of its jobs each, in turn. Tuning windows lie in the first half of the year, held-out ones in the second;
Philly is held out as a whole. The first tenth of a window fills the cluster and is not measured.

Where nodes fail, they fail as those of InfiniteHBD-Trace did (arXiv 2502.03885), from another week on in each window.

After its end the year of prices begins again, 52 weeks later by the clock, so that hours and weekdays stay what they
are: a job with a long tail costs what it would have cost the year before, and no window must end early.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal

from scheduler.bench.figures import offered_load
from scheduler.bench.real_worlds import permuted, repeated, scaled, without_egress
from scheduler.bench.sources import Sources
from scheduler.bench.worlds import USUAL, Conduct, Split, World, conducts
from scheduler.errors import InvalidValueError
from scheduler.replay.jobs import ReplayJob
from scheduler.replay.trace_rule import traced_job
from scheduler.replay.traces import TraceRow, read_trace
from scheduler.replay.workload import jobs_of
from scheduler.spec.scenario import FaultPlan, Scenario
from scheduler.spec.scenario_document import FaultsSection
from scheduler.spec.scenario_jobs import TraceFile
from scheduler.units import parse_time

Workload = Literal["kalos-x1", "kalos-x5", "kalos-x10", "helios-x1", "helios-x1.5", "philly"]
Backbone = Literal["list", "owned"]
BACKBONES: Final[tuple[Backbone, ...]] = ("list", "owned")

_SCENARIOS: Final[Mapping[Workload, str]] = {
    "kalos-x1": "real12-kalos-x1",
    "kalos-x5": "real12-kalos",
    "kalos-x10": "real12-kalos-x10",
    "helios-x1": "real12-helios",
    "helios-x1.5": "real12-helios-x1.5",
    "philly": "real12-kalos",  # for its regions and links alone
}
WORKLOADS: Final = tuple(_SCENARIOS)
_HALF_YEARS: Final = {
    Split.TUNING: (parse_time("2023-01-09T00:00:00Z"), parse_time("2023-07-01T00:00:00Z")),
    Split.HELD_OUT: (parse_time("2023-07-03T00:00:00Z"), parse_time("2023-12-25T00:00:00Z")),
}
"""From when a window may start (a week of prices lies before it), and until when its last job should have come."""

_DATES: Final = 5
_WARM_UP: Final = 0.1
_DAY_S: Final = 86400.0
_WEEK_S: Final = 7 * _DAY_S
_FAULT_TRACE: Final = Path("data/faults/infinitehbd_fault_trace.json.gz")
_FAULT_NODES: Final = 400
_PHILLY_TRACE: Final = "philly_ge4gpu"
_PHILLY_GPUS: Final = 0.25
_PHILLY_LOAD: Final = 0.85
_PHILLY_PARTS: Final = 4


@dataclass(frozen=True, slots=True)
class RealCell:
    """A workload on the twelve regions."""

    split: Split
    workload: Workload
    backbone: Backbone
    conduct: Conduct = USUAL
    faults: bool = False
    draws: int = 20
    grid: str = "R"

    @property
    def name(self) -> str:
        """Workload, whether egress is paid, and whether nodes fail."""
        return f"{self.workload} {self.backbone}{' faults' if self.faults else ''}{self.conduct.name}"

    def world(self, draw: int, sources: Sources) -> World:
        """One of its windows."""
        scenario = sources.scenario(_SCENARIOS[self.workload])
        cluster = scenario.cluster if self.backbone == "list" else without_egress(scenario.cluster)
        if self.workload == "philly":
            part, permutation = draw % _PHILLY_PARTS, draw // _PHILLY_PARTS
            cluster = scaled(cluster, _PHILLY_GPUS)
            date = permutation
        else:
            part, permutation, date = 0, draw // _DATES, draw % _DATES
        scenario = replace(
            scenario,
            name=f"{self.grid} {self.name}",
            cluster=permuted(cluster, permutation),
            electricity={name: repeated(series) for name, series in scenario.electricity.items()},
            training=scenario.training.model_copy(update={"schedule": self.conduct.schedule}),
            truth=self.conduct.truth(draw),
            faults=_faults(sources, draw) if self.faults else None,
        )
        if self.workload == "philly":
            jobs = _philly_jobs(scenario, sources, part, self.conduct)
        else:
            jobs = _jobs_as_shipped(scenario, self.conduct)
        span_s = jobs[-1].submit_s
        scenario = replace(scenario, start_s=_start_s(self.split, date, span_s))
        jobs = tuple(_declared(job, scenario.start_s, self.conduct, draw) for job in jobs)
        return World(scenario, jobs, measured_from_s=_WARM_UP * span_s)


def real_cells(split: Split) -> tuple[RealCell, ...]:
    """The whole grid: all windows under the usual conduct, half of them with faults, and under the other conducts."""
    workloads = tuple(name for name in WORKLOADS if name != "philly" or split is Split.HELD_OUT)
    usual = [RealCell(split, workload, backbone) for workload in workloads for backbone in BACKBONES]
    failing = [replace(cell, faults=True, draws=10) for cell in usual]
    others = [
        replace(cell, conduct=conduct, draws=10)
        for conduct in conducts()
        if conduct != USUAL
        for cell in usual
    ]
    return (*usual, *failing, *others)


def _faults(sources: Sources, draw: int) -> FaultPlan:
    """The traced faults from another week on in every window, each traced node laid on another of ours."""
    section = FaultsSection(trace=_FAULT_TRACE.name, seed=draw, nodes=_FAULT_NODES, skip=draw * _WEEK_S)
    return FaultPlan(section, sources.folder / _FAULT_TRACE)


def _jobs_as_shipped(scenario: Scenario, conduct: Conduct) -> tuple[ReplayJob, ...]:
    """The trace of a scenario file, declaring what it does."""
    source = scenario.jobs
    if not isinstance(source, TraceFile):
        raise InvalidValueError("scenario", scenario.name, "a scenario with a trace")
    honest = {
        "elasticity": conduct.elasticity,
        "estimate": source.section.estimate.model_copy(update={"sigma": 0.0}),
    }
    section = source.section.model_copy(update=honest)
    return jobs_of(replace(scenario, jobs=TraceFile(source.path, section)))


def _philly_jobs(scenario: Scenario, sources: Sources, part: int, conduct: Conduct) -> tuple[ReplayJob, ...]:
    """A part of the trace, as dense as the offered load wants it."""
    rows = read_trace(sources.trace(_PHILLY_TRACE))
    first, last = (len(rows) * edge // _PHILLY_PARTS for edge in (part, part + 1))
    begin_s = rows[first].submit_s
    rows = tuple(replace(row, submit_s=row.submit_s - begin_s) for row in rows[first:last])
    as_traced = _traced(scenario, rows, conduct, arrivals=1.0)
    load = offered_load(World(scenario, as_traced))
    if load is None:
        raise InvalidValueError(_PHILLY_TRACE, len(rows), "jobs that come one after the other")
    return _traced(scenario, rows, conduct, arrivals=_PHILLY_LOAD / load)


def _traced(
    scenario: Scenario, rows: tuple[TraceRow, ...], conduct: Conduct, arrivals: float
) -> tuple[ReplayJob, ...]:
    return tuple(
        traced_job(row, scenario.cluster, scenario.training, conduct.elasticity, scenario.start_s, arrivals)
        for row in rows
    )


def _declared(job: ReplayJob, start_s: float, conduct: Conduct, draw: int) -> ReplayJob:
    """The job in its window, with an estimate of its own there."""
    moved = replace(job, spec=replace(job.spec, submit_s=start_s + job.submit_s))
    return conduct.declared(moved, seed=draw)


def _start_s(split: Split, date: int, span_s: float) -> float:
    """Starts spread evenly over the half-year, on whole days, the last so that all jobs come within it."""
    first_s, end_s = _HALF_YEARS[split]
    room_s = max(0.0, end_s - first_s - span_s)
    return first_s + date * room_s / (_DATES - 1) // _DAY_S * _DAY_S
