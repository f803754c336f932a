"""Around every request: its id, its line in the log, its figures, and the bound of its body. Plain ASGI."""

from __future__ import annotations

import re

import structlog
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service import limits
from service.api.access import AGENT_PREFIX
from service.api.audit_trail import CODE
from service.api.problems import MEDIA_TYPE, service_problem, status_of
from service.errors import TooLargeError
from service.logging import without_secrets
from service.services import Services

REQUEST_ID_HEADER = b"x-request-id"
UNKNOWN_ROUTE = "unknown"
_GIVEN_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")
_QUIET = frozenset({"/healthz", "/readyz", "/metrics", "/agent/v1/heartbeat"})
_log = structlog.get_logger("http")


class RequestScope:
    """Gives a request its id (the caller's, if it is one), counts it, and writes one line when it is answered."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        services: Services = scope["app"].state.services
        request_id = _request_id(scope, services)
        scope["bace_request_id"] = request_id
        structlog.contextvars.bind_contextvars(request_id=request_id)
        metrics, clock = services.metrics, services.clock
        started_s, status = clock.monotonic(), 500  # unless an answer has begun

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = int(message["status"])
                message["headers"] = [*message.get("headers", []), (REQUEST_ID_HEADER, request_id.encode())]
            await send(message)

        metrics.http_requests_in_progress.inc()
        try:
            await self._app(scope, receive, send_with_id)
        finally:
            metrics.http_requests_in_progress.dec()
            duration_s = clock.monotonic() - started_s
            route = getattr(scope.get("route"), "path", UNKNOWN_ROUTE)
            metrics.http_requests.labels(scope["method"], route, str(status)).inc()
            metrics.http_request_duration.labels(scope["method"], route).observe(duration_s)
            if route not in _QUIET:
                _log.info(
                    "request",
                    method=scope["method"],
                    path=scope["path"],
                    status=status,
                    duration_s=duration_s,
                )
            structlog.contextvars.unbind_contextvars("request_id")


class BodyLimit:
    """Refuses a body beyond the limit before anything of it is parsed, whatever its headers promise."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] in ("GET", "HEAD"):
            await self._app(scope, receive, send)
            return
        limit = limits.MAX_BODY_BYTES
        if scope["path"].startswith(AGENT_PREFIX):
            limit = limits.MAX_AGENT_BODY_BYTES
        body, message = bytearray(), None
        while message is None or message.get("more_body", False):
            message = await receive()
            if message["type"] != "http.request":
                return
            body += message.get("body", b"")
            if len(body) > limit:
                await _too_large(limit, scope, receive, send)
                return
        whole: Message = {"type": "http.request", "body": bytes(body), "more_body": False}
        handed_over = False

        async def receive_whole() -> Message:
            nonlocal handed_over
            if handed_over:
                return await receive()
            handed_over = True
            return whole

        await self._app(scope, receive_whole, send)


def _request_id(scope: Scope, services: Services) -> str:
    given = next((value for name, value in scope["headers"] if name == REQUEST_ID_HEADER), b"")
    if _GIVEN_ID.fullmatch(given) and without_secrets(given.decode()) == given.decode():
        return str(given.decode())
    return services.ids.new("req")


async def _too_large(limit: int, scope: Scope, receive: Receive, send: Send) -> None:
    error = TooLargeError(f"body: expected at most {limit} bytes")
    scope[CODE] = error.code
    document = service_problem(error, scope["path"], scope.get("bace_request_id", ""))
    headers = {"Connection": "close"}
    await JSONResponse(document, status_of(error), headers, MEDIA_TYPE)(scope, receive, send)
