"""Regions and their pools: what there is, what is used, what it costs now."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

from service import topics
from service.access import Principal
from service.capacity import GpuCount, count_gpus, used_by_node
from service.db.records import NodeRecord, PoolRecord, RegionRecord
from service.db.repositories import cluster, events, leader
from service.db.session import Session
from service.db.tables import SHARED_PROJECT
from service.errors import NotFoundError, PreconditionFailedError
from service.known_prices import price_now
from service.services import Services


@dataclass(frozen=True, slots=True)
class PoolView:
    """A pool with its GPUs by use and its rent now (USD per GPU-hour)."""

    pool: PoolRecord
    gpus: GpuCount
    rent_usd_per_gpu_hour: float | None


@dataclass(frozen=True, slots=True)
class RegionView:
    """A region with its GPUs by use and its prices now."""

    record: RegionRecord
    nodes: int
    gpus: GpuCount
    pools: tuple[PoolView, ...]
    electricity_usd_per_kwh: float | None
    carbon_g_per_kwh: float | None


@dataclass(frozen=True, slots=True)
class _Now:
    """What all views of one moment are made of."""

    nodes: list[NodeRecord]
    used: Counter[str]
    pools: list[PoolRecord]
    rent: dict[tuple[str, str, str], float]
    electricity: dict[tuple[str, str, str], float]
    carbon: dict[tuple[str, str, str], float]


async def list_all(services: Services) -> list[RegionView]:
    """By name."""
    now_s = services.clock.now()

    def work(session: Session) -> list[RegionView]:
        now = _now(session, now_s)
        return [_region_view(record, now) for record in cluster.regions(session)]

    return await services.db.read(work)


async def show(services: Services, name: str) -> RegionView:
    """Raises NotFoundError."""
    now_s = services.clock.now()
    return await services.db.read(lambda session: _region_view(_find(session, name), _now(session, now_s)))


async def put(
    services: Services, principal: Principal, wanted: RegionRecord, version: int | None
) -> tuple[RegionView, bool]:
    """Makes or changes a region (`wanted.version` is not looked at); whether it was made.

    Raises PreconditionFailedError if `version` is given and not the current one.
    """
    now_s = services.clock.now()

    def work(session: Session) -> tuple[RegionView, bool]:
        before = cluster.region(session, wanted.region)
        check_version(f"region {wanted.region}", before.version if before else None, version)
        if before is None:
            cluster.add_region(session, replace(wanted, version=1))
        else:
            cluster.change_region(
                session,
                before,
                pue=wanted.pue,
                uplink_bps=wanted.uplink_bps,
                downlink_bps=wanted.downlink_bps,
            )
        leader.capacity_changed(session)
        data = {"pue": wanted.pue, "uplink_bps": wanted.uplink_bps, "downlink_bps": wanted.downlink_bps}
        _tell(session, "region", wanted.region, principal, now_s, data)
        return _region_view(_find(session, wanted.region), _now(session, now_s)), before is None

    answer = await services.db.run(work)
    await services.bus.publish(topics.PLANNING)
    return answer


async def list_pools(services: Services) -> list[PoolView]:
    """By region and GPU type."""
    now_s = services.clock.now()

    def work(session: Session) -> list[PoolView]:
        now = _now(session, now_s)
        return [_pool_view(pool, now) for pool in now.pools]

    return await services.db.read(work)


async def put_pool(
    services: Services,
    principal: Principal,
    region: str,
    gpu_type: str,
    ownership: str,
    version: int | None,
) -> tuple[PoolView, bool]:
    """Says who owns the GPUs of a type in a region. Raises NotFoundError for a region or type that is not known."""
    now_s = services.clock.now()

    def work(session: Session) -> tuple[PoolView, bool]:
        _find(session, region)
        if cluster.gpu_type(session, gpu_type) is None:
            known = ", ".join(record.gpu_type for record in cluster.gpu_types(session)) or "none yet"
            raise NotFoundError(f"no node has brought the GPU type {gpu_type}: known are {known}")
        before = cluster.pool(session, region, gpu_type)
        check_version(f"pool {region}/{gpu_type}", before.version if before else None, version)
        if before is None:
            cluster.add_pool(session, PoolRecord(region, gpu_type, ownership, 1))
        else:
            cluster.change_pool(session, before, ownership=ownership)
        leader.capacity_changed(session)
        name = f"{region}/{gpu_type}"
        _tell(session, "pool", name[:64], principal, now_s, {"ownership": ownership})
        now = _now(session, now_s)
        pool = next(pool for pool in now.pools if (pool.region, pool.gpu_type) == (region, gpu_type))
        return _pool_view(pool, now), before is None

    answer = await services.db.run(work)
    await services.bus.publish(topics.PLANNING)
    return answer


def check_version(what: str, current: int | None, wanted: int | None) -> None:
    """Raises PreconditionFailedError if a version is wanted and it is not the current one."""
    if wanted is None or wanted == current:
        return
    if current is None:
        raise PreconditionFailedError(f"{what} does not exist, so it is at no version {wanted}")
    raise PreconditionFailedError(f"{what} is at version {current}, not {wanted}")


def _find(session: Session, name: str) -> RegionRecord:
    record = cluster.region(session, name)
    if record is None:
        known = ", ".join(record.region for record in cluster.regions(session)) or "none yet"
        raise NotFoundError(f"there is no region {name}: known are {known}")
    return record


def _now(session: Session, now_s: float) -> _Now:
    return _Now(
        nodes=cluster.nodes(session),
        used=used_by_node(session),
        pools=cluster.pools(session),
        rent=price_now(session, "rent", now_s),
        electricity=price_now(session, "electricity", now_s),
        carbon=price_now(session, "carbon", now_s),
    )


def _region_view(record: RegionRecord, now: _Now) -> RegionView:
    nodes = [node for node in now.nodes if node.region == record.region]
    return RegionView(
        record=record,
        nodes=len(nodes),
        gpus=count_gpus(nodes, now.used),
        pools=tuple(_pool_view(pool, now) for pool in now.pools if pool.region == record.region),
        electricity_usd_per_kwh=now.electricity.get((record.region, "", "")),
        carbon_g_per_kwh=now.carbon.get((record.region, "", "")),
    )


def _pool_view(pool: PoolRecord, now: _Now) -> PoolView:
    nodes = [node for node in now.nodes if (node.region, node.gpu_type) == (pool.region, pool.gpu_type)]
    return PoolView(pool, count_gpus(nodes, now.used), now.rent.get((pool.region, pool.gpu_type, "")))


def _tell(
    session: Session, kind: str, name: str, principal: Principal, at_s: float, data: dict[str, Any]
) -> None:
    events.append(
        session,
        project=SHARED_PROJECT,
        at_s=at_s,
        kind=f"{kind}.changed",
        object_kind=kind,
        object_id=name,
        actor=principal.token_id,
        data=data,
    )
