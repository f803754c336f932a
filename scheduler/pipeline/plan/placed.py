"""The stages of a job on the ranks of a layout, between the regions of its placement."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from scheduler.cluster import GpuType
from scheduler.pipeline.plan.ir import Link, Pipeline, StageCost, Worker
from scheduler.pipeline.plan.layouts import Layout
from scheduler.pipeline.plan.passes import place
from scheduler.pipeline.plan.stage_costs import stage_costs
from scheduler.placement import Cut
from scheduler.profile import USABLE_MEMORY, Workload, message_bytes_of


def placed(
    work: Workload,
    layout: Layout,
    gpus: Sequence[GpuType],
    regions: Sequence[str],
    links: Iterable[Link],
    *,
    split: bool,
) -> Pipeline:
    """The model cut into the stages of a layout; `gpus` and `regions` are those of each rank, `split` is for orders
    that split backwards. Raises InvalidValueError where a link is missing between regions, or there are too few layers.
    """
    costs: list[StageCost] = []
    for chain in layout.chains:
        costs += stage_costs(work, tuple(gpus[rank] for rank in chain), split=split)
    workers = [
        Worker(region, USABLE_MEMORY * gpu.memory_bytes) for region, gpu in zip(regions, gpus, strict=True)
    ]
    return place(layout, costs, workers, tuple(links), shape=(math.ceil(message_bytes_of(work)),))


def links_of(cuts: Iterable[Cut]) -> Iterator[Link]:
    """Both directions of every cut, as granted."""
    for cut in cuts:
        for src, dst in ((cut.src, cut.dst), (cut.dst, cut.src)):
            yield Link(src, dst, cut.latency_s, cut.bandwidth_bps)
