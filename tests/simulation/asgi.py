"""Requests into an ASGI application, and whole answers or streams out of it, without a socket."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import httpx

Application = Callable[[Any, Any, Any], Awaitable[None]]
ADDRESS = ("127.0.0.1", 123)
"""Whoever asks, asks from there."""


@dataclass(slots=True)
class Whole:
    """An answer of which all is there."""

    status: int = 500
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    body: bytes = b""


async def whole(application: Application, request: httpx.Request) -> Whole:
    """The answer; 500 with its error where the application has a defect."""
    answer = Whole()

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            answer.status, answer.headers = message["status"], message["headers"]
        else:
            answer.body += message.get("body", b"")

    try:
        await application(_scope(request), _Receive(request), send)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is a defect to be told
        return Whole(body=repr(error).encode())
    return answer


@dataclass(slots=True)
class Stream:
    """An answer that goes on until one of the two sides ends it."""

    status: int | None = None
    parts: asyncio.Queue[bytes | None] = field(default_factory=asyncio.Queue)
    """None: it is over."""
    has_begun: asyncio.Event = field(default_factory=asyncio.Event)
    is_left: asyncio.Event = field(default_factory=asyncio.Event)

    def leave(self) -> None:
        """The client goes away."""
        self.is_left.set()


async def follow(
    application: Application, request: httpx.Request, stream: Stream, wait: Callable[[], Awaitable[None]]
) -> None:
    """Fills the stream, as long as somebody reads it; nothing is sent but after `wait`."""

    async def send(message: Any) -> None:
        await wait()
        if message["type"] == "http.response.start":
            stream.status = message["status"]
            stream.has_begun.set()
        elif message.get("body"):
            stream.parts.put_nowait(message["body"])

    try:
        await application(_scope(request), _Receive(request, stream.is_left), send)
    finally:
        stream.has_begun.set()
        stream.parts.put_nowait(None)


class _Receive:
    """The body, then nothing until the client has left."""

    def __init__(self, request: httpx.Request, left: asyncio.Event | None = None) -> None:
        self._body: bytes | None = request.content
        self._left = left or asyncio.Event()

    async def __call__(self) -> dict[str, Any]:
        body, self._body = self._body, None
        if body is not None:
            return {"type": "http.request", "body": body, "more_body": False}
        await self._left.wait()
        return {"type": "http.disconnect"}


def _scope(request: httpx.Request) -> dict[str, Any]:
    url = request.url
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": request.method,
        "headers": [(name.lower(), value) for name, value in request.headers.raw],
        "scheme": url.scheme,
        "path": url.path,
        "raw_path": url.raw_path.partition(b"?")[0],
        "query_string": url.query,
        "server": (url.host, url.port),
        "client": ADDRESS,
        "root_path": "",
    }
