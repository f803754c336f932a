"""`/v1/links`: what lies between the regions."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Response

from service import links
from service.api.access import Caller, Injected
from service.api.answers import REFUSALS
from service.api.etags import etag, wanted_version
from service.api.routes.regions import RegionPath
from service.api.schemas.base import Page
from service.api.schemas.cluster import Link, PutLink
from service.api.strict_json import StrictRoute
from service.db.records import LinkRecord

router = APIRouter(prefix="/v1/links", tags=["cluster"], route_class=StrictRoute, responses=REFUSALS)
Version = Annotated[int | None, Depends(wanted_version)]


@router.get("", response_model=Page[Link])
async def list_links(services: Injected, principal: Caller) -> Page[Link]:
    """All directed links: as set, as measured, what planning goes by, and what running jobs hold of them."""
    return Page(items=[Link.of(view) for view in await links.list_all(services)])


@router.put("/{src}/{dst}", response_model=Link, responses={201: {"model": Link}})
async def put_link(
    services: Injected,
    principal: Caller,
    response: Response,
    src: RegionPath,
    dst: RegionPath,
    body: PutLink,
    version: Version,
) -> Link:
    """Make or change a directed link."""
    wanted = LinkRecord(
        src, dst, body.capacity_bps, body.latency_s, 1, body.capacity_is_limit, body.measuring
    )
    view, is_new = await links.put(services, principal, wanted, version)
    response.status_code = 201 if is_new else 200
    response.headers["ETag"] = etag(view.link.version)
    return Link.of(view)
