"""So many requests of clients at once and no more: what comes beyond is told to come again. Plain ASGI.

Agents are let through whatever the clients do: their heartbeats must not wait behind them. A stream counts until it has
begun; open ones are bounded for each token.
"""

from __future__ import annotations

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.api.audit_trail import CODE
from service.api.problems import MEDIA_TYPE, retry_after, service_problem, status_of
from service.errors import RateLimitedError
from service.services import Services

NOT_COUNTED = ("/agent/", "/healthz", "/readyz", "/metrics")
RETRY_AFTER_S = 1.0


class ClientGate:
    """Counts the requests of clients that are being answered."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._inside = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"].startswith(NOT_COUNTED):
            await self._app(scope, receive, send)
            return
        services: Services = scope["app"].state.services
        if self._inside >= services.settings.max_client_requests:
            services.metrics.rate_limited.labels("server").inc()
            await _refuse(scope, receive, send)
            return
        is_inside = True
        self._inside += 1

        def leave() -> None:
            nonlocal is_inside
            self._inside -= is_inside
            is_inside = False

        async def send_and_leave(message: Message) -> None:
            if message["type"] == "http.response.start":
                leave()
            await send(message)

        try:
            await self._app(scope, receive, send_and_leave)
        finally:
            leave()


async def _refuse(scope: Scope, receive: Receive, send: Send) -> None:
    error = RateLimitedError("the server answers as many requests as it can: try again", RETRY_AFTER_S)
    scope[CODE] = error.code
    document = service_problem(error, scope["path"], scope.get("bace_request_id", ""))
    headers = {"Retry-After": retry_after(error)}
    await JSONResponse(document, status_of(error), headers, MEDIA_TYPE)(scope, receive, send)
