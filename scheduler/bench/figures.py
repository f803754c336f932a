"""The figures of one run: what a policy made of a world, over the jobs that are measured."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from scheduler.bench.alone import fastest, options_of
from scheduler.bench.worlds import World
from scheduler.replay.jobs import ReplayJob
from scheduler.replay.metrics import spread, summary_of
from scheduler.replay.records import JobRow, ReplayResult
from scheduler.replay.solo import solo_iteration_s

Figures = dict[str, float | None]
"""By name, unit last; None where a figure has no meaning (a percentile of no jobs)."""

GANG_GPUS = 64
_SHORTEST_S = 10.0


def figures_of(world: World, result: ReplayResult) -> Figures:
    """All of them. Means and percentiles are over the measured jobs that ran; money is theirs as well.

    `slowdown_*` is JCT over the time that the job would take alone at its fastest. `fairness_worst` is the worst
    tenant's mean of JCT over the time alone on an equal share of the GPUs (finish-time fairness, Themis 2020; a
    share is one of as many as there are tenants). In both a job counts as one of at least 10 s, as jobs of a second
    would decide the means alone (bounded slowdown, Feitelson 1998). `gang_*` are jobs that name 64 GPUs and more.
    Utilisation and times of decisions are those of the whole run.
    """
    measured = {job.spec.job_id: job for job in world.measured}
    rows = [row for row in result.jobs if row.job_id in measured]
    ran = [row for row in rows if row.jct_s is not None and row.first_start_s is not None]
    jct = spread([_jct_s(row) for row in ran])
    waits = spread([_wait_s(row) for row in ran])
    decisions = spread(result.decisions.durations_s)
    electricity, egress = _total(rows, "electricity_usd"), _total(rows, "egress_usd")
    return {
        "jobs": len(rows),
        "rejected": len(rows) - len(ran),
        "jct_mean_s": jct["mean"],
        "jct_p95_s": jct["p95"],
        "jct_gpu_weighted_s": _weighted_jct_s(ran, measured),
        "wait_mean_s": waits["mean"],
        **_against_alone(world, ran, measured),
        "tenant_wait_p99_worst_s": _worst_p99_wait_s(ran),
        **_gangs(ran, measured),
        "electricity_usd": electricity,
        "egress_usd": egress,
        "rent_usd": _total(rows, "rent_usd"),
        "paid_usd": electricity + egress,
        "energy_kwh": _total(rows, "energy_kwh"),
        "preemptions": _total(rows, "preemptions"),
        "migrations": _total(rows, "migrations"),
        "gpu_utilisation": summary_of(world.scenario, result)["gpu_utilisation"]["overall"],
        "decisions": decisions["count"],
        "decision_p50_s": decisions["p50"],
        "decision_p99_s": decisions["p99"],
    }


def offered_load(world: World) -> float | None:
    """GPU-seconds of all jobs at the stages that they name, over those that the cluster has from the first submission
    to the last; None where all jobs come at once."""
    span_s = world.jobs[-1].submit_s - world.jobs[0].submit_s
    if span_s <= 0:
        return None
    cluster = world.scenario.cluster
    work = math.fsum(
        named_gpus(job) * job.actual_steps * solo_iteration_s(job.spec, cluster, _named_stages(job))
        for job in world.jobs
    )
    return work / (sum(pool.gpus for pool in cluster.pools.values()) * span_s)


def named_gpus(job: ReplayJob) -> int:
    """The GPUs that the job asks for itself."""
    return _named_stages(job) * job.spec.parallelism.gpus_per_stage


def _named_stages(job: ReplayJob) -> int:
    return job.spec.parallelism.named_stages or 1


def _jct_s(row: JobRow) -> float:
    return math.nan if row.jct_s is None else row.jct_s


def _wait_s(row: JobRow) -> float:
    return math.nan if row.first_start_s is None else row.first_start_s - row.submit_s


def _total(rows: Iterable[JobRow], name: str) -> float:
    return math.fsum(getattr(row, name) for row in rows)


def _weighted_jct_s(ran: Sequence[JobRow], measured: Mapping[str, ReplayJob]) -> float | None:
    gpus = math.fsum(named_gpus(measured[row.job_id]) for row in ran)
    return math.fsum(named_gpus(measured[row.job_id]) * _jct_s(row) for row in ran) / gpus if gpus else None


def _against_alone(world: World, ran: Sequence[JobRow], measured: Mapping[str, ReplayJob]) -> Figures:
    cluster = world.cluster
    tenants = {job.spec.project for job in measured.values()}
    share = sum(pool.gpus for pool in cluster.pools.values()) / max(1, len(tenants))
    slowdowns: list[float] = []
    unfairness: dict[str, list[float]] = defaultdict(list)
    for row in ran:
        options = options_of(measured[row.job_id], cluster)
        slowdowns.append(_jct_s(row) / max(_SHORTEST_S, fastest(options).duration_s))
        shared_s = max(_SHORTEST_S, fastest(options, share).duration_s)
        unfairness[row.tenant].append(_jct_s(row) / shared_s)
    slowdown = spread(slowdowns)
    means = [math.fsum(values) / len(values) for values in unfairness.values()]
    return {
        "slowdown_mean": slowdown["mean"],
        "slowdown_p95": slowdown["p95"],
        "fairness_worst": max(means, default=None),
    }


def _worst_p99_wait_s(ran: Sequence[JobRow]) -> float | None:
    waits: dict[str, list[float]] = defaultdict(list)
    for row in ran:
        waits[row.tenant].append(_wait_s(row))
    p99s = [p99 for p99 in (spread(values)["p99"] for values in waits.values()) if p99 is not None]
    return max(p99s, default=None)


def _gangs(ran: Sequence[JobRow], measured: Mapping[str, ReplayJob]) -> Figures:
    waits = spread([_wait_s(row) for row in ran if named_gpus(measured[row.job_id]) >= GANG_GPUS])
    return {"gangs": waits["count"], "gang_wait_mean_s": waits["mean"], "gang_wait_p99_s": waits["p99"]}
