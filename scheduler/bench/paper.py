"""Grid P, the paper's kind (BACE-Pipe, arXiv 2605.25375): six regions of A6000 GPUs, static prices, jobs by the batch.

The paper does not publish its workload. What it leaves open is set here:

- each region has 16, 32, 64 or 128 GPUs and a NIC of 25, 50, 75 or 100 Gbps, drawn alike; a link has the mean of the
  NICs of its ends in each direction, up- and downlinks are not bounded, latency is half the round trip of DT-FM's
  table, egress costs nothing;
- a cluster is drawn again until one of its regions has 128 GPUs: then the largest job (FLM-101B, at least 68 GPUs)
  fits in one region where GPUs are not scaled down, and in the whole cluster (at least 104 GPUs) at × 0.5, where no
  region holds it and every policy of one region must reject it;
- a GPU sustains 62 TFLOP/s, has 48 GB and draws a constant 300 W; PUE is 1, as the paper has none;
- a job trains one of the six models, drawn alike, on 2e7 … 5e8 tokens, log-uniform, at 64 micro-batches of 4
  sequences of 2,048 tokens, bf16 with full recompute: nothing else fits in 48 GB. A stage is 2 GPUs in tensor
  parallel, of Llama-3.1-70B and FLM-101B 4: a layer with its optimizer state would not fit in fewer;
- it names the fewest stages that fit, rounded up to a power of two; four tenants submit, drawn alike;
- arrivals are all at once, or a Poisson process with a mean gap of half an hour.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from scheduler.bench.paper_jobs import ARRIVALS, GPU, START_S, Arrivals, drawn_jobs
from scheduler.bench.sources import Sources
from scheduler.bench.worlds import USUAL, Conduct, Split, World, conducts
from scheduler.cluster import Cluster, Link, LinkKey, Pool, Region
from scheduler.job import Recompute
from scheduler.price import PriceSeries
from scheduler.spec.scenario import Scenario
from scheduler.spec.scenario_document import ScaleSection, TrainingDefaultsSection

_CLUSTER: Final = 1
"""What sets its random numbers apart from those of the jobs of a draw."""

_CITIES: Final = {
    "eu-west-1": "Ireland",
    "us-east-2": "Ohio",
    "eu-central-1": "Frankfurt",
    "ap-northeast-1": "Tokyo",
    "ap-southeast-1": "Singapore",
    "ap-southeast-2": "Sydney",
}
_USD_PER_KWH: Final = {
    "eu-west-1": 0.295,
    "us-east-2": 0.156,
    "eu-central-1": 0.27,
    "ap-northeast-1": 0.19,
    "ap-southeast-1": 0.22,
    "ap-southeast-2": 0.25,
}
_POOL_GPUS: Final = (16, 32, 64, 128)
_NIC_GBPS: Final = (25.0, 50.0, 75.0, 100.0)
_BPS_PER_GBPS: Final = 1e9


@dataclass(frozen=True, slots=True)
class PaperCell:
    """So many jobs on clusters whose links and pools are scaled."""

    split: Split
    jobs: int
    arrivals: Arrivals
    bandwidth: float = 1.0
    gpus: float = 1.0
    conduct: Conduct = USUAL
    draws: int = 10
    grid: str = "P"

    @property
    def name(self) -> str:
        """Jobs, arrivals, and the two scales."""
        return f"{self.jobs} {self.arrivals} bw{self.bandwidth:g} gpus{self.gpus:g}{self.conduct.name}"

    def world(self, draw: int, sources: Sources) -> World:
        """One of its draws. Those of cells that differ in scale, number of jobs or conduct alone have the same
        regions, and the same first jobs."""
        pools, nic_gbps = drawn_regions(self.split, draw)
        links = {
            (src, dst): Link(
                src, dst, bps * self.bandwidth, sources.wan()[_CITIES[src], _CITIES[dst]].latency_s
            )
            for (src, dst), bps in _mean_of_nics(nic_gbps).items()
        }
        cluster = paper_cluster(pools, self.gpus, links)
        jobs = drawn_jobs(self.split, draw, self.jobs, self.arrivals, self.conduct)
        return World(paper_scenario(f"{self.grid} {self.name}", cluster, self.conduct, draw), jobs)


def paper_cells(split: Split) -> tuple[PaperCell, ...]:
    """The whole grid, under each conduct: slack 1F1B, strict 1F1B, and jobs that nobody may stop."""
    return tuple(
        PaperCell(split, jobs, arrivals, bandwidth, gpus, conduct)
        for conduct in conducts()
        for jobs in JOB_COUNTS
        for arrivals in ARRIVALS
        for bandwidth in BANDWIDTHS
        for gpus in GPU_SCALES
    )


GPU_SCALES: Final = (0.5, 1.0, 1.25)
BANDWIDTHS: Final = (0.3, 1.0, 1.5)
JOB_COUNTS: Final = (8, 16, 24)


def drawn_regions(split: Split, draw: int) -> tuple[Mapping[str, int], Mapping[str, float]]:
    """GPUs and NIC (Gbps) of each region."""
    random = np.random.default_rng([_CLUSTER, split.entropy, draw])
    while True:
        gpus = {region: int(random.choice(_POOL_GPUS)) for region in _CITIES}
        nic_gbps = {region: float(random.choice(_NIC_GBPS)) for region in _CITIES}
        if max(gpus.values()) == max(_POOL_GPUS):
            return gpus, nic_gbps


def city_of(region: str) -> str:
    """The city of a region in the table of measured paths."""
    return _CITIES[region]


def paper_cluster(pools: Mapping[str, int], scale: float, links: Mapping[LinkKey, Link]) -> Cluster:
    """The six regions with so many GPUs, scaled and rounded down."""
    return Cluster(
        gpu_types={GPU.name: GPU},
        regions={region: Region(region) for region in pools},
        pools={
            (region, GPU.name): Pool(region, GPU.name, int(gpus * scale)) for region, gpus in pools.items()
        },
        links=links,
    )


def paper_scenario(name: str, cluster: Cluster, conduct: Conduct, draw: int) -> Scenario:
    """A scenario of static prices. It names no jobs: they are drawn beside it."""
    return Scenario(
        name=name,
        path=Path(name),
        start_s=START_S,
        cluster=cluster,
        electricity={region: PriceSeries.flat(_USD_PER_KWH[region]) for region in cluster.regions},
        price_sources=dict.fromkeys(cluster.regions, "static"),
        jobs=(),
        training=TrainingDefaultsSection(schedule=conduct.schedule, recompute=Recompute.FULL),
        truth=conduct.truth(draw),
        scale=ScaleSection(),
    )


def _mean_of_nics(nic_gbps: Mapping[str, float]) -> dict[LinkKey, float]:
    """Bits per second of every link."""
    return {
        (src, dst): (nic_gbps[src] + nic_gbps[dst]) / 2 * _BPS_PER_GBPS
        for src in nic_gbps
        for dst in nic_gbps
        if src != dst
    }
