"""The whole Philly trace as a replay: its fifteen virtual clusters are regions, and a job stays in its own.

Jobs run with the stages that they name, so that the offered load is what was traced: with K* stages most of them would
take several times the GPU-seconds, and no queue would ever end.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from scheduler import presets
from scheduler.cluster import Cluster, Link, Pool, Region
from scheduler.job import Elasticity, PlacementRule, Recompute, Schedule
from scheduler.price import PriceSeries
from scheduler.replay.jobs import ReplayJob
from scheduler.replay.trace_rule import traced_job
from scheduler.replay.traces import TraceRow, read_trace
from scheduler.spec.scenario import Scenario
from scheduler.spec.scenario_document import ScaleSection, TrainingDefaultsSection

OFFERED_LOAD = 0.85
"""Traced GPU-seconds of a virtual cluster over what its pool has in the time of the trace."""
LINK_BPS = 100e9
START_S = 1_507_000_000.0
TRAINING = TrainingDefaultsSection(schedule=Schedule.SLACK_1F1B, recompute=Recompute.SELECTIVE)


def philly(data_dir: Path) -> tuple[Scenario, list[ReplayJob]]:
    """The scenario, with a flat price for each region, and all its jobs in order of submission."""
    rows = read_trace(data_dir / "data/traces/philly_full.csv.gz")
    cluster = _cluster(rows)
    scenario = Scenario(
        name="philly",
        path=Path("philly.yaml"),
        start_s=START_S,
        cluster=cluster,
        electricity={
            name: PriceSeries.flat(0.05 + 0.01 * index) for index, name in enumerate(cluster.regions)
        },
        price_sources=dict.fromkeys(cluster.regions, "flat"),
        jobs=(),
        training=TRAINING,
        scale=ScaleSection(),
    )
    return scenario, [_job(row, cluster) for row in rows]


def _job(row: TraceRow, cluster: Cluster) -> ReplayJob:
    job = traced_job(row, cluster, TRAINING, Elasticity.NONE, START_S, 1.0)
    named = job.spec.parallelism.named_stages
    spec = replace(
        job.spec,
        placement=PlacementRule(regions=(row.tenant,)),
        parallelism=replace(job.spec.parallelism, stages_min=named, stages_max=named),
    )
    return replace(job, spec=spec)


def _cluster(rows: Sequence[TraceRow]) -> Cluster:
    """A pool for each virtual cluster: for the offered load, and no smaller than its largest job."""
    gpu = presets.gpu("A100-80G")
    traced_s = rows[-1].submit_s
    used: defaultdict[str, float] = defaultdict(float)
    largest: defaultdict[str, int] = defaultdict(int)
    for row in rows:
        used[row.tenant] += row.gpus * row.duration_s
        largest[row.tenant] = max(largest[row.tenant], row.gpus)
    pools = [
        Pool(name, gpu.name, max(largest[name], round(used[name] / traced_s / OFFERED_LOAD)))
        for name in sorted(used)
    ]
    return Cluster(
        {gpu.name: gpu},
        {pool.region: Region(pool.region, 1.2) for pool in pools},
        {pool.key: pool for pool in pools},
        {(a, b): Link(a, b, LINK_BPS, 0.001) for a, b in itertools.permutations(sorted(used), 2)},
    )
