"""Server-sent streams: resumable by number, woken by the bus, and over when the token is."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Generic, TypeVar

from fastapi import Header, Query, Request
from pydantic import BaseModel
from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.types import Receive, Scope, Send

from service import limits
from service.access import Principal
from service.api.problems import service_problem, trace_id_of
from service.authentication import Authenticator
from service.errors import FieldError, InvalidInputError, ServiceError
from service.services import Services

T = TypeVar("T")
KEEP_ALIVE_S = 15


@dataclass(frozen=True, slots=True)
class Batch(Generic[T]):
    """What was found after a number; `is_last`: nothing can follow any more."""

    items: Sequence[T]
    is_last: bool = False


@dataclass(frozen=True, slots=True)
class Feed(Generic[T]):
    """A source of numbered items: `read(after)` finds them, `limits.STREAM_BATCH` of them at most, `topic` wakes,
    `message` names and shows one."""

    topic: str
    read: Callable[[int], Awaitable[Batch[T]]]
    message: Callable[[T], tuple[int, str, BaseModel]]


async def resume_after(
    after: Annotated[int | None, Query(ge=0, le=2**53, description="go on after this number")] = None,
    last_event_id: Annotated[str | None, Header(max_length=20)] = None,
) -> int:
    """From where a stream goes on: `Last-Event-ID` (sent by a client that reconnects), else `after`, else all."""
    if not last_event_id:
        return after or 0
    if not (last_event_id.isascii() and last_event_id.isdigit()):
        expected = "the id of a message before"
        raise InvalidInputError(
            f"Last-Event-ID: expected {expected}",
            errors=(
                FieldError("/last-event-id", f"expected {expected}", value=last_event_id, where="header"),
            ),
        )
    return int(last_event_id)


def stream(
    request: Request,
    services: Services,
    tokens: Authenticator,
    principal: Principal,
    feed: Feed[T],
    after: int,
) -> EventSourceResponse:
    """The feed as a stream from a number on. It ends with `event: error` when the token is no longer good."""

    async def messages() -> AsyncIterator[ServerSentEvent]:
        wakes = services.bus.subscribe(feed.topic)
        seen = after
        try:
            while True:
                await tokens.check(principal.sha256)
                batch = await feed.read(seen)
                for item in batch.items:
                    seen, name, content = feed.message(item)
                    yield ServerSentEvent(content.model_dump_json(), event=name, id=str(seen))
                if batch.is_last:
                    yield ServerSentEvent(json.dumps({"after": seen}), event="end", id=str(seen))
                    return
                if len(batch.items) < limits.STREAM_BATCH:  # that was all; what has come since has woken us
                    await _next_wake(wakes)
        except ServiceError as error:
            document = service_problem(error, request.url.path, trace_id_of(request))
            yield ServerSentEvent(json.dumps(document), event="error", id=str(seen))

    return _CountedStream(tokens, principal, messages())


class _CountedStream(EventSourceResponse):
    """A stream that is one of so many that its token may have open."""

    def __init__(
        self, tokens: Authenticator, principal: Principal, messages: AsyncIterator[ServerSentEvent]
    ) -> None:
        super().__init__(messages, ping=KEEP_ALIVE_S)
        self._tokens = tokens
        self._principal = principal

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._tokens.streaming(self._principal):
            await super().__call__(scope, receive, send)


async def _next_wake(wakes: AsyncIterator[Any]) -> None:
    try:
        async with asyncio.timeout(limits.STREAM_POLL_S):
            await anext(wakes)
    except TimeoutError:
        return
