"""`/v1/events` and `/v1/allocations`: what happened, and what was held when."""

from __future__ import annotations

import math
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request
from sse_starlette import EventSourceResponse

from service import allocations, events, limits, topics
from service.api.access import Caller, Injected, Tokens
from service.api.answers import REFUSALS, Cursor, Limit, Moment
from service.api.schemas.base import Page
from service.api.schemas.events import Event
from service.api.schemas.placements import Allocation
from service.api.sse import Batch, Feed, resume_after, stream
from service.api.strict_json import StrictRoute
from service.db.records import EventRecord

router = APIRouter(prefix="/v1", tags=["history"], route_class=StrictRoute, responses=REFUSALS)


@router.get(
    "/events",
    response_class=EventSourceResponse,
    responses={200: {"content": {"text/event-stream": {}}, "model": Event}},
)
async def follow_events(
    request: Request,
    services: Injected,
    principal: Caller,
    tokens: Tokens,
    after: Annotated[int, Depends(resume_after)],
) -> EventSourceResponse:
    """A stream of changes, resumable by `Last-Event-ID` or `after`: of the caller's project and of what all share."""

    async def read(seen: int) -> Batch[EventRecord]:
        return Batch(await events.after(services, principal, seen, limits.STREAM_BATCH))

    feed = Feed(topics.EVENTS, read, lambda event: (event.seq, event.kind, Event.model_validate(event)))
    return stream(request, services, tokens, principal, feed, after)


@router.get("/allocations", response_model=Page[Allocation])
async def list_allocations(
    services: Injected,
    principal: Caller,
    from_s: Annotated[Moment, Query(alias="from")] = None,
    to_s: Annotated[Moment, Query(alias="to")] = None,
    cursor: Cursor = None,
    limit: Limit = limits.PAGE_DEFAULT,
) -> Page[Allocation]:
    """What held GPUs at any time from `from` to `to`, the oldest first."""
    views, following = await allocations.list_page(
        services,
        principal,
        from_s=0.0 if from_s is None else from_s,
        to_s=math.inf if to_s is None else to_s,
        cursor=cursor,
        limit=limit,
    )
    return Page(items=[Allocation.of(view) for view in views], next=following)
