"""`/v1/regions` and `/v1/pools`: places, their GPUs and who owns them."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Response

from service import regions
from service.api.access import Caller, Injected
from service.api.answers import REFUSALS
from service.api.etags import etag, wanted_version
from service.api.schemas.base import Page
from service.api.schemas.cluster import Pool, PutPool, PutRegion, Region
from service.api.strict_json import StrictRoute
from service.db.records import RegionRecord

router = APIRouter(prefix="/v1", tags=["cluster"], route_class=StrictRoute, responses=REFUSALS)
Version = Annotated[int | None, Depends(wanted_version)]
RegionPath = Annotated[str, Path(pattern=r"^[a-z0-9][a-z0-9._-]{0,62}$")]
GpuTypePath = Annotated[str, Path(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")]


@router.get("/regions", response_model=Page[Region])
async def list_regions(services: Injected, principal: Caller) -> Page[Region]:
    """All regions with their GPUs by use and their prices now."""
    return Page(items=[Region.of(view) for view in await regions.list_all(services)])


@router.get("/regions/{region}", response_model=Region)
async def show_region(
    services: Injected, principal: Caller, response: Response, region: RegionPath
) -> Region:
    """One region."""
    view = await regions.show(services, region)
    response.headers["ETag"] = etag(view.record.version)
    return Region.of(view)


@router.put("/regions/{region}", response_model=Region, responses={201: {"model": Region}})
async def put_region(
    services: Injected,
    principal: Caller,
    response: Response,
    region: RegionPath,
    body: PutRegion,
    version: Version,
) -> Region:
    """Make or change a region. An agent that joins makes its region by itself, with the defaults."""
    wanted = RegionRecord(region, body.pue, body.uplink_bps, body.downlink_bps, 1)
    view, is_new = await regions.put(services, principal, wanted, version)
    response.status_code = 201 if is_new else 200
    response.headers["ETag"] = etag(view.record.version)
    return Region.of(view)


@router.get("/pools", response_model=Page[Pool])
async def list_pools(services: Injected, principal: Caller) -> Page[Pool]:
    """The GPUs of one type in one region, for all of them."""
    return Page(items=[Pool.of(view) for view in await regions.list_pools(services)])


@router.put("/pools/{region}/{gpu_type}", response_model=Pool, responses={201: {"model": Pool}})
async def put_pool(
    services: Injected,
    principal: Caller,
    response: Response,
    region: RegionPath,
    gpu_type: GpuTypePath,
    body: PutPool,
    version: Version,
) -> Pool:
    """Say who owns a pool: an owner pays electricity, a renter rent."""
    view, is_new = await regions.put_pool(services, principal, region, gpu_type, body.ownership, version)
    response.status_code = 201 if is_new else 200
    response.headers["ETag"] = etag(view.pool.version)
    return Pool.of(view)
