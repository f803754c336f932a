"""The figures of a replay's summary, all from the rows of its files but for the decision times."""

from __future__ import annotations

import math
import platform
from collections import Counter
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

import numpy as np

from scheduler.replay.records import JobRow, ReplayResult
from scheduler.spec.scenario import Scenario
from scheduler.spec.scenario_document import GeneratedJobsSection
from scheduler.spec.scenario_jobs import TraceFile
from scheduler.units import format_time

_PACKAGES = ("bacepipe", "numpy", "numba", "ortools", "networkx")


def summary_of(scenario: Scenario, result: ReplayResult) -> dict[str, Any]:
    """The content of summary.json. Percentiles interpolate linearly; means are over the jobs that ran.

    `timing` is measured in real time and differs from run to run; everything else is a function of the scenario,
    the policy and the seed.
    """
    ran = [job for job in result.jobs if job.finish_s is not None]
    makespan_s = _makespan_s(ran)
    return {
        "scenario": scenario.name,
        "start": format_time(scenario.start_s),
        "policy": result.policy,
        "seed": result.seed,
        "estimate": _estimate(scenario),
        "scale": scenario.scale.model_dump(),
        "versions": {"python": platform.python_version(), **{name: version(name) for name in _PACKAGES}},
        "jobs": {
            "total": len(result.jobs),
            "by_state": dict(sorted(Counter(j.state for j in result.jobs).items())),
        },
        "jct_s": spread([job.jct_s for job in ran if job.jct_s is not None]),
        "queueing_s": spread(
            [job.first_start_s - job.submit_s for job in ran if job.first_start_s is not None]
        ),
        "makespan_s": makespan_s,
        "steps": sum(job.steps for job in result.jobs),
        "generations": sum(job.generations for job in result.jobs),
        "preemptions": sum(job.preemptions for job in result.jobs),
        "migrations": sum(job.migrations for job in result.jobs),
        "faults": {
            "nodes": result.node_faults,
            "jobs_hit": sum(job.faults for job in result.jobs),
            "steps_lost": sum(
                {(row.job_id, row.generation): row.steps_lost for row in result.allocations}.values()
            ),
        },
        "jobs_over_several_regions": sum(1 for job in ran if job.chain and ">" in job.chain),
        "energy_kwh": math.fsum(job.energy_kwh for job in result.jobs),
        "costs_usd": _costs(result.jobs),
        "gpu_utilisation": _utilisation(scenario, result, makespan_s),
        "rejected": [
            {
                "job_id": rejection.job_id,
                "reasons": [
                    {"code": reason.code.value, "detail": reason.detail} for reason in rejection.reasons
                ],
            }
            for rejection in result.rejections
        ],
        "timing": {
            "decision_s": {
                **spread(result.decisions.durations_s),
                "total": math.fsum(result.decisions.durations_s),
            },
            "wall_s": result.wall_s,
            "jobs_per_s": len(result.jobs) / result.wall_s if result.wall_s > 0 else None,
        },
    }


def spread(values: Sequence[float]) -> dict[str, float | int | None]:
    """Count, mean, percentiles and maximum; all but the count None where there are no values."""
    if not values:
        return {"count": 0, "mean": None, "p50": None, "p95": None, "p99": None, "max": None}
    p50, p95, p99 = (float(each) for each in np.percentile(np.asarray(values, dtype=float), (50, 95, 99)))
    return {
        "count": len(values),
        "mean": math.fsum(values) / len(values),
        "p50": p50,
        "p95": p95,
        "p99": p99,
        "max": max(values),
    }


def _makespan_s(ran: Sequence[JobRow]) -> float:
    """From the first submission to the last end, over the jobs that ran."""
    ends = [job.finish_s for job in ran if job.finish_s is not None]
    return max(ends) - min(job.submit_s for job in ran) if ends else 0.0


def _costs(jobs: Sequence[JobRow]) -> dict[str, float]:
    electricity = math.fsum(job.electricity_usd for job in jobs)
    egress = math.fsum(job.egress_usd for job in jobs)
    rent = math.fsum(job.rent_usd for job in jobs)
    return {
        "electricity": electricity,
        "egress": egress,
        "rent": rent,
        "owner_paid": electricity + egress,
        "renter_paid": rent + egress,
    }


def _utilisation(scenario: Scenario, result: ReplayResult, makespan_s: float) -> dict[str, Any]:
    """GPU-seconds held over GPU-seconds there were in the makespan."""
    there = dict.fromkeys(scenario.cluster.regions, 0)
    for pool in scenario.cluster.pools.values():
        there[pool.region] += pool.gpus
    held = dict.fromkeys(there, 0.0)
    for row in result.allocations:
        held[row.region] += row.gpus * (row.end_s - row.start_s)

    def share(gpu_seconds: float, gpus: int) -> float:
        return gpu_seconds / (gpus * makespan_s) if gpus and makespan_s > 0 else 0.0

    return {
        "overall": share(math.fsum(held.values()), sum(there.values())),
        "by_region": {region: share(held[region], there[region]) for region in there},
    }


def _estimate(scenario: Scenario) -> dict[str, float | int] | None:
    source = scenario.jobs
    if isinstance(source, TraceFile):
        return source.section.estimate.model_dump()
    return source.estimate.model_dump() if isinstance(source, GeneratedJobsSection) else None
