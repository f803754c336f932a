"""How long one round of decisions takes: 12 regions and 200 waiting jobs, beside FIFO and a bare count in one run; 50
regions and 1,000 waiting jobs."""

from __future__ import annotations

import random
import statistics
import time
from dataclasses import replace
from itertools import cycle

import pytest

from scheduler import presets
from scheduler.check import check_plan
from scheduler.cluster import Cluster, Link, Pool, Region
from scheduler.job import JobSpec, Parallelism, Schedule, Training
from scheduler.network import Residual
from scheduler.policies import MAIN, PolicyConfig, decide
from scheduler.price import PriceSeries
from scheduler.snapshot import Snapshot, WaitingJob
from tests.worlds import runs

REGIONS = 12
JOBS = 200
ROUNDS = 40
ACCEPTED_MS = 20.0
"""p99 of BACE-Pipe, 12 regions and 200 waiting jobs."""
MANY_REGIONS = 50
MANY_JOBS = 1000
MANY_ROUNDS = 12
ACCEPTED_MANY_MS = 500.0
ACCEPTED_LIVE_MS = 1000.0
"""BACE-Pipe, 50 regions and 1,000 waiting jobs."""
SIZES = (512, 256, 256, 128, 128, 256, 256, 64, 128, 128, 128, 160)
MODELS = (
    (2, "gpt-3-1.3b"),
    (8, "llama-2-7b"),
    (32, "llama-2-13b"),
    (128, "llama-3.1-70b"),
    (4096, "gpt-3-175b"),
)


def _cluster(rng: random.Random, regions: int) -> Cluster:
    gpu = presets.gpu("A100-80G")
    names = [f"region-{number:02d}" for number in range(regions)]
    return Cluster(
        {gpu.name: gpu},
        {name: Region(name, rng.uniform(1.1, 1.4), 100e9, 100e9) for name in names},
        {(name, gpu.name): Pool(name, gpu.name, size) for name, size in zip(names, cycle(SIZES))},
        {
            (a, b): Link(a, b, rng.uniform(30e9, 80e9), rng.uniform(0.01, 0.1))
            for a in names
            for b in names
            if a != b
        },
    )


def _job(number: int, rng: random.Random) -> WaitingJob:
    gpus = rng.choice([8, 16, 32, 64, 128, 256, 504, 1024])
    stages = 1
    while stages * 2 <= min(16, gpus // 8):
        stages *= 2
    per_stage = -(-gpus // stages)
    tensor = min(8, per_stage)
    name = next(name for most, name in MODELS if gpus <= most)
    model = replace(presets.model(name), seq_len=2048 if name.startswith("gpt") else 4096)
    spec = JobSpec(
        f"job-{number:05d}",
        f"job-{number:05d}",
        "perf",
        float(number),
        model,
        Training(1000, 1, 8 * stages, schedule=Schedule.SLACK_1F1B),
        Parallelism(tensor=tensor, data=per_stage / tensor, named_stages=stages),
    )
    return WaitingJob(spec, rng.randint(10, 1000))


def _worlds(rng: random.Random, regions: int, jobs: int, rounds: int) -> list[Snapshot]:
    """Rounds as a busy cluster sees them: some jobs run, the rest is in fragments, many wait."""
    cluster = _cluster(rng, regions)
    prices = {name: PriceSeries.flat(rng.uniform(0.02, 0.2)).known(0.0) for name in cluster.regions}
    worlds = []
    for version in range(rounds):
        early = tuple(_job(10_000 + number, rng) for number in range(40 * regions // REGIONS))
        by_id = {each.spec.job_id: each for each in early}
        starts = list(decide(Snapshot(0, 0.0, cluster, prices, early), PolicyConfig("bace-k0")).starts)
        kept = rng.sample(starts, rng.randint(0, len(starts)))
        running = tuple(runs(by_id[start.job_id], start.placement) for start in kept)
        waiting = tuple(_job(number, rng) for number in range(jobs))
        worlds.append(Snapshot(version, 0.0, cluster, prices, waiting, running))
    return worlds


def _bare_count(snap: Snapshot) -> int:
    """The least any policy must do: look at the free GPUs of every region for every job."""
    residual = Residual.of(snap)
    pools = sorted(snap.cluster.pools)
    return sum(
        residual.free_gpus(pool) >= job.spec.parallelism.gpus_per_stage
        for job in snap.waiting
        for pool in pools
    )


def _milliseconds(work, worlds: list[Snapshot]) -> list[float]:
    """CPU time of each round, ascending: other work on the machine does not count."""
    taken = []
    for snap in worlds:
        begin = time.process_time()
        work(snap)
        taken.append((time.process_time() - begin) * 1e3)
    return sorted(taken)


@pytest.mark.perf
def test_decide_for_12_regions_and_200_waiting_jobs():
    worlds = _worlds(random.Random(5), REGIONS, JOBS, ROUNDS)
    bare = statistics.median(_milliseconds(_bare_count, worlds))
    print(f"\n{REGIONS} regions, {JOBS} waiting jobs, {ROUNDS} rounds, CPU time; bare count: {bare:.2f} ms")
    fifo = 0.0
    for name in MAIN:
        config = PolicyConfig(name)
        first = _milliseconds(lambda snap, config=config: decide(snap, config), worlds[:1])[0]
        taken = _milliseconds(lambda snap, config=config: decide(snap, config), worlds)
        median, p99 = statistics.median(taken), taken[int(0.99 * (len(taken) - 1))]
        fifo = fifo or median
        print(
            f"  {name:8} median {median:6.2f} ms  p99 {p99:6.2f} ms  first {first:7.1f} ms  "
            f"{median / fifo:5.2f} × fifo  {median / bare:5.1f} × bare count"
        )
        assert check_plan(worlds[0], decide(worlds[0], config)) == ()
        if name == "bace":
            assert p99 <= ACCEPTED_MS
        # Far above what is printed: a round that costs more than a second would starve the queue.
        assert median < 1000


@pytest.mark.perf
@pytest.mark.parametrize(
    ("name", "accepted_ms"),
    [("fifo", ACCEPTED_MANY_MS), ("bace", ACCEPTED_MANY_MS), ("horizon", ACCEPTED_LIVE_MS)],
)
def test_decide_for_50_regions_and_1000_waiting_jobs(name, accepted_ms):
    worlds = _worlds(random.Random(6), MANY_REGIONS, MANY_JOBS, MANY_ROUNDS)
    config = PolicyConfig(name)
    first = _milliseconds(lambda snap: decide(snap, config), worlds[:1])[0]
    taken = _milliseconds(lambda snap: decide(snap, config), worlds)
    print(
        f"\n{MANY_REGIONS} regions, {MANY_JOBS} waiting jobs, {MANY_ROUNDS} rounds, CPU time; {name}: median "
        f"{statistics.median(taken):.1f} ms, max {taken[-1]:.1f} ms, first {first:.1f} ms"
    )
    assert check_plan(worlds[0], decide(worlds[0], config)) == ()
    assert taken[-1] <= accepted_ms
