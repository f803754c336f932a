"""The routes that are asked all the time: as strict about bodies as any other, and without the framework's way from a
body to a function.

Heartbeats and submissions come by the hundred a second. Their body is read once, made into what the endpoint takes,
handed over, and the answer written as it is; the framework would solve a tree of dependencies, copy the answer into a
second model and turn that into plain values first. What the documentation says of the routes is the framework's, as
everywhere.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel

from service.api.access import authorise, services_of
from service.api.strict_json import Handler, StrictRequest, StrictRoute
from service.errors import UnauthenticatedError

MEDIA_TYPE = "application/json"


class WireRoute(StrictRoute):
    """A route whose endpoint is called as `endpoint(services, principal, body, *headers)`, headers in the
    order in which it declares them; each may be left out. It answers a model, or a response of its own."""

    def get_route_handler(self) -> Handler:
        headers = self.dependant.header_params
        if self.body_field is None or any(header.field_info.is_required() for header in headers):
            raise TypeError(f"{self.path}: a route of the wire has a body, and headers that may be left out")
        return _handler(self.body_field, headers, self.endpoint)


def _handler(
    body: Any, headers: Sequence[Any], endpoint: Callable[..., Awaitable[BaseModel | Response]]
) -> Handler:
    async def handle(request: Request) -> Response:
        principal = await authorise(request)
        if principal is None:
            raise UnauthenticatedError("this route needs a bearer token")
        document = await StrictRequest(request.scope, request.receive).json()
        said = [_header(header, request) for header in headers]
        told, wrong = body.validate(document, loc=("body",))
        if wrong or any(wrong_here for _, wrong_here in said):
            wrong = [*(each for _, wrong_here in said for each in wrong_here), *wrong]
            raise RequestValidationError(wrong, body=document)
        values = [value for value, _ in said]
        reply = await endpoint(await services_of(request), principal, told, *values)
        if isinstance(reply, Response):
            return reply
        return Response(reply.model_dump_json(exclude_none=True), media_type=MEDIA_TYPE)

    return handle


def _header(header: Any, request: Request) -> tuple[Any, list[dict[str, Any]]]:
    """Its value, and what is wrong with it."""
    given = request.headers.get(header.alias)
    if given is None:
        return header.get_default(), []
    value, wrong = header.validate(given, loc=("header", header.alias))
    return value, wrong
