"""Who may do what: one table of routes and roles. A route that is not in it is closed to everybody."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated

from fastapi import Depends, Request

from service import limits
from service.access import Principal, Role
from service.api.audit_trail import audited
from service.authentication import Authenticator
from service.errors import ForbiddenError, UnauthenticatedError
from service.services import Services

_ADMIN = frozenset({Role.ADMIN})
_ADMINS = frozenset({Role.ADMIN, Role.PROJECT_ADMIN})
"""Of everything, or of the project that the token is for: the use-cases look which."""
_SUBMIT = _ADMINS | {Role.SUBMITTER}
_READ = _SUBMIT | {Role.VIEWER}
_AGENT = frozenset({Role.AGENT})

AGENT_PREFIX = "/agent/"
PUBLIC = frozenset({("GET", "/healthz"), ("GET", "/readyz"), ("GET", "/")})
"""Open without a token: they tell nothing but that the server is there. (`/` is the empty dashboard.)"""

ACCESS: Mapping[tuple[str, str], frozenset[Role]] = MappingProxyType(
    {
        ("POST", "/v1/jobs"): _SUBMIT,
        ("GET", "/v1/jobs"): _READ,
        ("GET", "/v1/jobs/{job_id}"): _READ,
        ("POST", "/v1/jobs/{job_id}/cancel"): _SUBMIT,
        ("GET", "/v1/jobs/{job_id}/explain"): _READ,
        ("GET", "/v1/jobs/{job_id}/logs"): _READ,
        ("GET", "/v1/jobs/{job_id}/events"): _READ,
        ("GET", "/v1/jobs/{job_id}/steps"): _READ,
        ("POST", "/v1/plans"): _SUBMIT,
        ("POST", "/v1/schedules"): _SUBMIT,
        ("GET", "/v1/jobs/{job_id}/schedules"): _READ,
        ("GET", "/v1/allocations"): _READ,
        ("GET", "/v1/events"): _READ,
        ("GET", "/v1/nodes"): _READ | _AGENT,
        ("GET", "/v1/nodes/{node_id}"): _READ,
        ("POST", "/v1/nodes/{node_id}/cordon"): _ADMIN,
        ("POST", "/v1/nodes/{node_id}/uncordon"): _ADMIN,
        ("POST", "/v1/nodes/{node_id}/drain"): _ADMIN,
        ("POST", "/v1/nodes/{node_id}/revoke"): _ADMIN,
        ("POST", "/v1/join-tokens"): _ADMIN,
        ("GET", "/v1/regions"): _READ,
        ("GET", "/v1/regions/{region}"): _READ,
        ("PUT", "/v1/regions/{region}"): _ADMIN,
        ("GET", "/v1/pools"): _READ,
        ("PUT", "/v1/pools/{region}/{gpu_type}"): _ADMIN,
        ("GET", "/v1/links"): _READ,
        ("PUT", "/v1/links/{src}/{dst}"): _ADMIN,
        ("GET", "/v1/prices"): _READ,
        ("GET", "/v1/prices/{series_id}"): _READ,
        ("PUT", "/v1/prices"): _ADMIN,
        ("POST", "/v1/prices/import"): _ADMIN,
        ("GET", "/v1/projects"): _READ,
        ("POST", "/v1/projects"): _ADMIN,
        ("PUT", "/v1/projects/{project}"): _ADMIN,
        ("PUT", "/v1/projects/{project}/quota"): _ADMIN,
        ("GET", "/v1/audit"): _ADMINS,
        ("GET", "/v1/accounts"): _ADMINS,
        ("POST", "/v1/accounts"): _ADMINS,
        ("PUT", "/v1/accounts/{account}/roles/{project}"): _ADMINS,
        ("POST", "/v1/accounts/{account}/disable"): _ADMINS,
        ("POST", "/v1/accounts/{account}/enable"): _ADMINS,
        ("GET", "/v1/tokens"): _ADMINS,
        ("POST", "/v1/tokens"): _ADMINS,
        ("POST", "/v1/tokens/{token_id}/rotate"): _READ | _AGENT,
        ("POST", "/v1/tokens/{token_id}/revoke"): _ADMINS,
        ("GET", "/v1/whoami"): _READ | _AGENT,
        ("GET", "/metrics"): frozenset({Role.ADMIN, Role.VIEWER}),
        ("GET", "/openapi.json"): _READ,
        ("POST", "/agent/v1/join"): _AGENT,
        ("POST", "/agent/v1/heartbeat"): _AGENT,
    }
)


async def authorise(request: Request) -> Principal | None:
    """Every route depends on it. Raises UnauthenticatedError, ForbiddenError; None on a public route."""
    if not hasattr(request.state, "principal"):
        request.state.principal = await _principal(request)
    principal: Principal | None = request.state.principal
    return principal


async def caller(principal: Annotated[Principal | None, Depends(authorise)]) -> Principal:
    """The caller of a route that is not public."""
    if principal is None:
        raise UnauthenticatedError("this route needs a bearer token")
    return principal


async def services_of(request: Request) -> Services:
    """What the application was made with; a request that may change something writes its audit row with the change."""
    await authorise(request)
    services: Services = request.app.state.services
    return audited(request, services)


async def authenticator_of(request: Request) -> Authenticator:
    """The one memory of tokens of this application."""
    authenticator: Authenticator = request.app.state.authenticator
    return authenticator


Caller = Annotated[Principal, Depends(caller)]
Injected = Annotated[Services, Depends(services_of)]
Tokens = Annotated[Authenticator, Depends(authenticator_of)]


async def _principal(request: Request) -> Principal | None:
    route = (request.method, request.scope["route"].path)
    if route in PUBLIC:
        return None
    tokens, cost = await authenticator_of(request), limits.REQUEST_COSTS.get(route, 1.0)
    address = request.client.host if request.client else ""
    principal = await tokens.recognise(_bearer(request), address)
    # Not the principal yet: whoever is denied below was recognised all the same, and the audit log tells who it was.
    request.state.recognised = principal
    if not request.scope["path"].startswith(AGENT_PREFIX):  # heartbeats never wait
        tokens.keep_to_rate(principal, cost)
    allowed = ACCESS.get(route, frozenset())
    if principal.role not in allowed:
        roles = ", ".join(sorted(role.value for role in allowed)) or "nobody"
        raise ForbiddenError(f"a token of role {principal.role.value} may not do this: it is for {roles}")
    return principal


def _bearer(request: Request) -> str:
    scheme, _, text = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not text.strip():
        raise UnauthenticatedError("send a token: Authorization: Bearer bace_…")
    return text.strip()
