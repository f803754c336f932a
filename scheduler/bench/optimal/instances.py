"""Small random decisions: two to four regions, two or three jobs that wait, and in every second one jobs that run."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations
from typing import Final

import numpy as np

from scheduler.cluster import Cluster, Link, LinkKey, Pool, Region
from scheduler.job import Elasticity, JobSpec, Parallelism, Recompute, Schedule, Training
from scheduler.placement import Allocation
from scheduler.policies import PolicyConfig, decide
from scheduler.presets import gpu, model
from scheduler.price import PriceSeries
from scheduler.snapshot import RunningJob, Snapshot, WaitingJob

_NOW_S: Final = 1_767_225_600.0
"""2026-01-01T00:00:00Z; with flat prices any moment is as good."""
_STREAM: Final = 7
"""What sets these random numbers apart from those of the grids."""
_GPU: Final = gpu("A6000")
_STAGE_GPUS: Final = 4
_POOL_STAGES: Final = (2, 3, 4)
"""Stages that a pool may hold."""
_MODELS: Final = ("Qwen2.5-14B", "Qwen2.5-32B", "Gemma-3-27B")
_SEQ_LEN: Final = 2048
_MICRO_BATCH: Final = 4
_MICRO_BATCHES: Final = 32
_TOKENS: Final = (1e7, 2e8)
_MOST_REGIONS: Final = 2
"""A job stands in at most so many regions."""
_MOST_RUNNING: Final = 3


def drawn_snapshot(seed: int) -> Snapshot:
    """A decision that depends on the seed alone. Odd seeds have jobs that run, each in one region."""
    random = np.random.default_rng([_STREAM, seed])
    cluster = _cluster(random)
    electricity = {
        name: PriceSeries.flat(float(random.uniform(0.15, 0.3))).known(_NOW_S) for name in cluster.regions
    }
    empty = Snapshot(1, _NOW_S, cluster, electricity)
    running = _running(random, empty) if seed % 2 else ()
    waiting = tuple(
        _job(random, f"job-{index}", _NOW_S - float(random.uniform(0, 1200)))
        for index in range(int(random.integers(2, 4)))
    )
    return replace(empty, waiting=waiting, running=running)


def _cluster(random: np.random.Generator) -> Cluster:
    """Links of 0.3 to 5 Gbps: a cut of these jobs needs between a tenth of that and more than all of it."""
    names = [f"region-{index}" for index in range(int(random.integers(2, 5)))]
    regions, links = {}, dict[LinkKey, Link]()
    for name in names:
        bounded_bps = float(random.uniform(1e9, 6e9)) if random.random() < 0.5 else float("inf")
        regions[name] = Region(name, float(random.uniform(1.05, 1.4)), bounded_bps, bounded_bps)
    for src, dst in permutations(names, 2):
        if src < dst:
            capacity_bps = float(np.exp(random.uniform(*np.log((0.3e9, 5e9)))))
            latency_s, usd_per_gb = float(random.uniform(0.005, 0.1)), float(random.choice((0.0, 0.02, 0.08)))
            links[src, dst] = Link(src, dst, capacity_bps, latency_s, usd_per_gb)
            links[dst, src] = Link(dst, src, capacity_bps, latency_s, usd_per_gb)
    pools = {
        (name, _GPU.name): Pool(name, _GPU.name, _STAGE_GPUS * int(random.choice(_POOL_STAGES)))
        for name in names
    }
    return Cluster(gpu_types={_GPU.name: _GPU}, regions=regions, pools=pools, links=links)


def _job(random: np.random.Generator, name: str, submit_s: float) -> WaitingJob:
    """It keeps the place on which it starts: what a decision leads to can be told to the end."""
    tokens = float(np.exp(random.uniform(*np.log(_TOKENS))))
    spec = JobSpec(
        job_id=name,
        name=name,
        project="tenant",
        submit_s=submit_s,
        model=replace(model(str(random.choice(_MODELS))), seq_len=_SEQ_LEN),
        training=Training(
            steps=max(1, round(tokens / (_MICRO_BATCHES * _MICRO_BATCH * _SEQ_LEN))),
            micro_batch=_MICRO_BATCH,
            micro_batches=_MICRO_BATCHES,
            schedule=Schedule.SLACK_1F1B,
            recompute=Recompute.FULL,
        ),
        parallelism=Parallelism(tensor=_STAGE_GPUS),
        elasticity=Elasticity.NONE,
    )
    spec = replace(spec, placement=replace(spec.placement, max_regions=_MOST_REGIONS))
    return WaitingJob(spec, spec.training.steps)


def _running(random: np.random.Generator, empty: Snapshot) -> tuple[RunningJob, ...]:
    """Up to three jobs, each in the cheapest region that had room for it, with some of its steps done."""
    waiting = tuple(
        _job(random, f"run-{index}", _NOW_S - 7200)
        for index in range(int(random.integers(1, _MOST_RUNNING + 1)))
    )
    specs = {job.spec.job_id: job.spec for job in waiting}
    found = []
    for start in decide(replace(empty, waiting=waiting), PolicyConfig("lcf")).starts:
        spec = specs[start.job_id]
        allocation = Allocation(f"allocation-{start.job_id}", start.job_id, 1, start.placement, _NOW_S - 7200)
        left = max(1, round(spec.training.steps * float(random.uniform(0.2, 0.95))))
        found.append(RunningJob(spec, allocation, left))
    return tuple(found)
