"""Rows → `scheduler.Cluster`: what there is, and which of its GPUs are free."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

from scheduler.cluster import Cluster, GpuType, Link, LinkKey, Node, Ownership, Pool, PoolKey, Region
from scheduler.placement import Placement
from service.db.records import HeldGpuRecord, NodeRecord
from service.db.repositories import cluster, link_tests
from service.db.session import Session
from service.known_prices import price_now
from service.lifecycle import NodeState
from service.link_estimates import Figures, figures_of


def cluster_of(
    session: Session,
    records: Sequence[NodeRecord],
    held: Iterable[HeldGpuRecord],
    placements: Iterable[Placement],
    now_s: float,
) -> Cluster:
    """The cluster with these nodes. `held` are the GPUs that live allocations hold, `placements` where these stand.

    Nodes that are cordoned or lost offer no GPU; what runs on them still counts as held.
    """
    nodes = _nodes(records, held)
    return Cluster(
        gpu_types=_gpu_types(session, records),
        regions={
            record.region: Region(
                record.region,
                record.pue,
                math.inf if record.uplink_bps is None else record.uplink_bps,
                math.inf if record.downlink_bps is None else record.downlink_bps,
            )
            for record in cluster.regions(session)
        },
        pools=_pools(session, records, nodes, placements, now_s),
        links=links_of(session, now_s),
        nodes=nodes,
    )


def whole(there_is: Cluster, records: Sequence[NodeRecord]) -> Cluster:
    """The cluster as it is with every one of these nodes at work, and nothing held."""
    nodes = _nodes([replace(record, state=NodeState.READY) for record in records], ())
    gpus: dict[PoolKey, int] = defaultdict(int)
    for node in nodes:
        gpus[node.region, node.gpu_type] += len(node.free_gpus)
    pools = {key: replace(pool, gpus=gpus[key]) for key, pool in there_is.pools.items()}
    return replace(there_is, pools=pools, nodes=nodes)


def _gpu_types(session: Session, nodes: Iterable[NodeRecord]) -> dict[str, GpuType]:
    """A type is as fast as the slowest of its nodes: the slowest stage sets the pace of a pipeline."""
    slowest: dict[str, float] = {}
    for node in nodes:
        slowest[node.gpu_type] = min(node.sustained_flops, slowest.get(node.gpu_type, math.inf))
    return {
        record.gpu_type: GpuType(
            name=record.gpu_type,
            sustained_flops=slowest[record.gpu_type],
            memory_bytes=record.memory_bytes,
            power_w=record.power_w,
            idle_w=record.idle_w,
            intra_region_bps=record.intra_region_bps,
        )
        for record in cluster.gpu_types(session)
        if record.gpu_type in slowest
    }


def _nodes(records: Iterable[NodeRecord], held: Iterable[HeldGpuRecord]) -> tuple[Node, ...]:
    taken: dict[str, set[int]] = defaultdict(set)
    for gpu in held:
        taken[gpu.node_id].add(gpu.gpu_index)
    return tuple(
        Node(
            node_id=record.node_id,
            region=record.region,
            gpu_type=record.gpu_type,
            free_gpus=tuple(index for index in range(record.gpus) if index not in taken[record.node_id]),
        )
        for record in records
        if record.state == NodeState.READY
    )


def _pools(
    session: Session,
    records: Iterable[NodeRecord],
    nodes: Iterable[Node],
    placements: Iterable[Placement],
    now_s: float,
) -> dict[PoolKey, Pool]:
    """Held GPUs count even on nodes that take nothing new: pool − running = what is free on ready nodes."""
    gpus: dict[PoolKey, int] = {(record.region, record.gpu_type): 0 for record in records}
    for node in nodes:
        gpus[node.region, node.gpu_type] += len(node.free_gpus)
    for placement in placements:
        for segment in placement.segments:
            key = (segment.region, segment.gpu_type)
            gpus[key] = gpus.get(key, 0) + segment.gpus
    rent = price_now(session, "rent", now_s)
    owned = {(record.region, record.gpu_type): record.ownership for record in cluster.pools(session)}
    return {
        (region, gpu_type): Pool(
            region=region,
            gpu_type=gpu_type,
            gpus=count,
            ownership=Ownership(owned.get((region, gpu_type), Ownership.OWNED)),
            rent_usd_per_gpu_hour=rent.get((region, gpu_type, ""), 0.0),
        )
        for (region, gpu_type), count in sorted(gpus.items())
    }


def links_of(session: Session, now_s: float) -> dict[LinkKey, Link]:
    """The links with their egress prices as known at a moment."""
    egress = price_now(session, "egress", now_s)
    return {
        key: Link(
            src=key[0],
            dst=key[1],
            capacity_bps=figures.capacity_bps,
            latency_s=figures.latency_s,
            egress_usd_per_gb=egress.get((key[0], "", key[1]), 0.0),
        )
        for key, figures in link_figures(session).items()
    }


def link_figures(session: Session) -> dict[LinkKey, Figures]:
    """What planning goes by of each link: what was set, or measured."""
    estimates = link_tests.estimates(session)
    return {
        (record.src, record.dst): figures_of(record, estimates.get((record.src, record.dst)))
        for record in cluster.links(session)
    }
