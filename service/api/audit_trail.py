"""What is audited of the requests: every one that may change something, and every denial. Plain ASGI."""

from __future__ import annotations

from http import HTTPStatus

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.access import Principal
from service.audit import Attempt, AuditedDb, Outcome
from service.db.tables import SHARED_PROJECT
from service.services import Services

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
NOT_AUDITED = frozenset({"/agent/v1/heartbeat"})
"""Some per second of each node: what they change stands in the history of its objects. Their denials are audited."""
DENIALS = frozenset({HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.TOO_MANY_REQUESTS})
UNKNOWN_ROUTE = "unknown"
CODE = "bace_problem_code"
RECOGNISED = "recognised"
"""Under that name the request's state has who has shown a good token, allowed or not."""
_TRAIL = "bace_audited_db"


class AuditTrail:
    """Notes what came of a request, unless its change was written with its row already."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status = int(HTTPStatus.INTERNAL_SERVER_ERROR)  # unless an answer has begun

        async def send_and_see(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = int(message["status"])
                self._note(scope, status)
            await send(message)

        try:
            await self._app(scope, receive, send_and_see)
        except Exception:
            self._note(scope, status)
            raise

    @staticmethod
    def _note(scope: Scope, status: int) -> None:
        """Before the answer goes out: whoever has it finds it noted."""
        if scope.get("bace_noted"):
            return
        scope["bace_noted"] = True
        trail: AuditedDb | None = scope.get(_TRAIL)
        if trail is not None and trail.is_written:
            return
        services: Services = scope["app"].state.services
        outcome = _outcome(scope, status)
        code = str(scope.get(CODE, "internal_error" if outcome is Outcome.FAILED else ""))
        if outcome is Outcome.DENIED:
            services.metrics.denials.labels(code).inc()
        elif not _is_audited(scope):
            return
        services.audit.note(_attempt(scope, services).entry(outcome, code))


def audited(request: Request, services: Services) -> Services:
    """The services for a request that may change something: its changes are written with its row."""
    if not _is_audited(request.scope):
        return services
    trail = request.scope.get(_TRAIL)
    if trail is None:
        trail = request.scope[_TRAIL] = AuditedDb(services.db, _attempt(request.scope, services))
    return services.with_db(trail)


def _is_audited(scope: Scope) -> bool:
    return scope["method"] not in SAFE_METHODS and scope["path"] not in NOT_AUDITED


def _outcome(scope: Scope, status: int) -> Outcome:
    if status < HTTPStatus.BAD_REQUEST:
        return Outcome.DONE
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return Outcome.FAILED
    principal = _principal(scope)
    is_bound = principal is not None and principal.project != SHARED_PROJECT
    # What is not there at all and what is another's cannot be told apart, here as little as by the caller.
    if status in DENIALS or (status == HTTPStatus.NOT_FOUND and is_bound and "route" in scope):
        return Outcome.DENIED
    return Outcome.REFUSED


def _attempt(scope: Scope, services: Services) -> Attempt:
    client = scope.get("client")
    return Attempt(
        action=f"{scope['method']} {getattr(scope.get('route'), 'path', UNKNOWN_ROUTE)}",
        path=scope["path"],
        address=client[0] if client else "",
        trace_id=str(scope.get("bace_request_id", "")),
        principal=_principal(scope),
        at_s=services.clock.now(),
    )


def _principal(scope: Scope) -> Principal | None:
    found: Principal | None = scope.get("state", {}).get(RECOGNISED)
    return found
