"""Grid W: the jobs and clusters of grid P on a measured WAN.

Bandwidth and latency of a pair of regions are those of DT-FM's table (arXiv 2206.01288: one TCP flow, 0.3–1.1 Gbps),
egress is what the cloud lists for the pair.
"""

from __future__ import annotations

from dataclasses import dataclass

from scheduler.bench.paper import (
    GPU_SCALES,
    JOB_COUNTS,
    city_of,
    drawn_regions,
    paper_cluster,
    paper_scenario,
)
from scheduler.bench.paper_jobs import ARRIVALS, Arrivals, drawn_jobs
from scheduler.bench.sources import Sources
from scheduler.bench.worlds import USUAL, Conduct, Split, World, conducts
from scheduler.cluster import Link


@dataclass(frozen=True, slots=True)
class WanCell:
    """So many jobs on clusters whose pools are scaled."""

    split: Split
    jobs: int
    arrivals: Arrivals
    gpus: float = 1.0
    conduct: Conduct = USUAL
    draws: int = 10
    grid: str = "W"

    @property
    def name(self) -> str:
        """Jobs, arrivals, and the scale."""
        return f"{self.jobs} {self.arrivals} gpus{self.gpus:g}{self.conduct.name}"

    def world(self, draw: int, sources: Sources) -> World:
        """One of its draws: regions and jobs are those of the same draw of grid P."""
        pools, _ = drawn_regions(self.split, draw)
        paths, prices = sources.wan(), sources.egress_usd_per_gb()
        links = {
            (src, dst): Link(
                src,
                dst,
                paths[city_of(src), city_of(dst)].rate_bps,
                paths[city_of(src), city_of(dst)].latency_s,
                prices[src, dst],
            )
            for src in pools
            for dst in pools
            if src != dst
        }
        cluster = paper_cluster(pools, self.gpus, links)
        jobs = drawn_jobs(self.split, draw, self.jobs, self.arrivals, self.conduct)
        return World(paper_scenario(f"{self.grid} {self.name}", cluster, self.conduct, draw), jobs)


def wan_cells(split: Split) -> tuple[WanCell, ...]:
    """The whole grid, under each conduct."""
    return tuple(
        WanCell(split, jobs, arrivals, gpus, conduct)
        for conduct in conducts()
        for jobs in JOB_COUNTS
        for arrivals in ARRIVALS
        for gpus in GPU_SCALES
    )
