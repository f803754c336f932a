"""Small clusters and jobs for tests: every figure that matters is an argument, everything else stays out of the way."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from scheduler.cluster import Cluster, GpuType, Link, Pool, Region
from scheduler.job import (
    JobSpec,
    MeasuredProfile,
    ModelShape,
    Parallelism,
    PlacementRule,
    Schedule,
    Training,
)
from scheduler.placement import Allocation, Placement
from scheduler.price import PriceSeries
from scheduler.snapshot import RunningJob, Snapshot, WaitingJob

GPU = GpuType("g", sustained_flops=1e12, memory_bytes=100.0, power_w=1000.0, idle_w=100.0)
"""95 bytes of it can be used."""
BIG = GpuType("big", sustained_flops=1e12, memory_bytes=400.0, power_w=2000.0, idle_w=100.0)
SLOW = GpuType("slow", sustained_flops=1e12, memory_bytes=400.0, power_w=500.0, idle_w=100.0)


def region(name: str, *, pue: float = 1.0, up: float = math.inf, down: float | None = None) -> Region:
    """A region; its downlink is as wide as its uplink unless told."""
    return Region(name, pue, up, up if down is None else down)


def both_ways(
    *pairs: tuple[str, str, float], latency_s: float = 0.01, usd_per_gb: float = 0.0
) -> tuple[Link, ...]:
    """Links in both directions with the same capacity, bit/s."""
    return tuple(
        Link(src, dst, capacity, latency_s, usd_per_gb)
        for a, b, capacity in pairs
        for src, dst in ((a, b), (b, a))
    )


def cluster(
    pools: Mapping[str, int | Mapping[str, int]],
    links: Iterable[Link] = (),
    regions: Iterable[Region] = (),
    gpus: Iterable[GpuType] = (GPU,),
) -> Cluster:
    """`pools` maps a region to its GPUs (of the first type), or to GPUs by type."""
    types = {gpu.name: gpu for gpu in gpus}
    first = next(iter(types))
    told = {each.name: each for each in regions}
    by_type = {name: have if isinstance(have, Mapping) else {first: have} for name, have in pools.items()}
    return Cluster(
        gpu_types=types,
        regions={name: told.get(name, region(name)) for name in pools},
        pools={
            (name, kind): Pool(name, kind, n) for name, have in by_type.items() for kind, n in have.items()
        },
        links={link.key: link for link in links},
    )


def job(
    job_id: str = "j",
    *,
    layers: int = 8,
    seconds: float | Mapping[str, float] = 8.0,
    activation_bits: float = 8.0,
    weight_bytes: float = 8.0,
    inflight_bytes: float = 0.0,
    micro_batches: int = 4,
    steps: int = 10,
    stages: tuple[int | None, int | None] = (None, None),
    named: int | None = None,
    tensor: int = 1,
    placement: PlacementRule | None = None,
    priority: int = 50,
    submit_s: float = 0.0,
    schedule: Schedule = Schedule.ONE_F_ONE_B,
    generation: int = 1,
    avoid: Iterable[str] = (),
    require: Iterable[str] = (),
) -> WaitingJob:
    """A job with a measured profile: `seconds` is forward + backward of the whole model for one micro-batch.

    A is `activation_bits`; weights and activations in flight are those of the whole model. A model whose head is
    tiny, so that K stages of equal layers take seconds / K each (all but one part in a million).
    """
    by_type = seconds if isinstance(seconds, Mapping) else dict.fromkeys(("g", "big", "slow"), seconds)
    model = ModelShape("toy", layers, 1024, 1, 1, 1024, 4096, False, 1, 1)
    profile = MeasuredProfile(
        forward_s={kind: each / 3 for kind, each in by_type.items()},
        backward_s={kind: each * 2 / 3 for kind, each in by_type.items()},
        activation_bytes=activation_bits / 8,
        stage_memory_bytes=weight_bytes,
        inflight_bytes=inflight_bytes,
    )
    spec = JobSpec(
        job_id,
        job_id,
        "tests",
        submit_s,
        model,
        Training(steps, 1, micro_batches, schedule=schedule, splits_backward=True),
        Parallelism(stages[0], stages[1], named, tensor=tensor),
        placement or PlacementRule(),
        priority,
        profile=profile,
    )
    return WaitingJob(spec, steps, generation, frozenset(avoid), frozenset(require))


def snapshot(
    world: Cluster,
    *jobs: WaitingJob,
    prices: Mapping[str, float] | None = None,
    running: Iterable[RunningJob] = (),
) -> Snapshot:
    """A snapshot at time 0; a region without a price in `prices` has none that is known (default: 0.1 everywhere)."""
    usd = dict.fromkeys(world.regions, 0.1) if prices is None else prices
    series = {name: PriceSeries.flat(value).known(0.0) for name, value in usd.items()}
    return Snapshot(1, 0.0, world, series, tuple(jobs), tuple(running))


def runs(waiting: WaitingJob, placement: Placement, *, steps: int = 10) -> RunningJob:
    """The job as it runs on that placement."""
    job_id = waiting.spec.job_id
    allocation = Allocation(f"allocation-{job_id}", job_id, waiting.generation, placement, 0.0)
    return RunningJob(waiting.spec, allocation, steps)
