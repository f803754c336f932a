"""The agents' routes: as strict about bodies as any other, and without the framework's way from a body to a function.

A heartbeat is the one request that comes all the time. Its body is read once, made into its model, handed over, and
the answer written as it is; the framework would solve a tree of dependencies, copy the answer into a second model and
turn that into plain values first. What the documentation says of the routes is the framework's, as everywhere.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError

from agents.protocol import PROTOCOL_HEADER, PROTOCOL_VERSION
from service.api.access import authorise, services_of
from service.api.strict_json import Handler, StrictRequest, StrictRoute
from service.errors import UnauthenticatedError

MEDIA_TYPE = "application/json"


class WireRoute(StrictRoute):
    """A route whose endpoint is called as `endpoint(services, principal, model, version)` and answers a model."""

    def get_route_handler(self) -> Handler:
        if self.body_field is None:
            raise TypeError(f"{self.path}: a route of the wire has a body")
        return _handler(self.body_field.field_info.annotation, self.endpoint)


def _handler(model: Any, endpoint: Callable[..., Awaitable[BaseModel]]) -> Handler:
    async def handle(request: Request) -> Response:
        principal = await authorise(request)
        if principal is None:
            raise UnauthenticatedError("this route needs a bearer token")
        document = await StrictRequest(request.scope, request.receive).json()
        try:
            told = model.model_validate(document)
        except ValidationError as error:
            entries = [{**entry, "loc": ("body", *entry["loc"])} for entry in error.errors()]
            raise RequestValidationError(entries, body=document) from None
        version = request.headers.get(PROTOCOL_HEADER, str(PROTOCOL_VERSION))
        reply = await endpoint(await services_of(request), principal, told, version)
        return Response(reply.model_dump_json(exclude_none=True), media_type=MEDIA_TYPE)

    return handle
