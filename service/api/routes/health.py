"""`/healthz`, `/readyz`, `/metrics`, `/openapi.json`."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from prometheus_client import CONTENT_TYPE_LATEST

from service import readiness
from service.api.access import Injected
from service.api.answers import REFUSALS
from service.api.schemas.health import Alive, Readiness

router = APIRouter(tags=["health"])


@router.get("/healthz", response_model=Alive)
async def healthz() -> Alive:
    """The process answers. Needs no token."""
    return Alive(status="ok")


@router.get("/readyz", response_model=Readiness, responses={503: {"model": Readiness}})
async def readyz(services: Injected) -> Response:
    """The database answers, its schema is this program's, and somebody leads. Needs no token."""
    state = await readiness.check(services)
    document = Readiness.model_validate(state).model_dump(mode="json")
    return JSONResponse(document, 200 if state.ready else 503)


@router.get(
    "/metrics",
    response_class=Response,
    responses={
        200: {"content": {CONTENT_TYPE_LATEST: {}}},
        **{status: REFUSALS[status] for status in (401, 403, 429, 503)},
    },
)
async def metrics(services: Injected) -> Response:
    """For Prometheus. Give it a viewer's token of all projects."""
    return Response(services.metrics.exposition(), media_type=CONTENT_TYPE_LATEST)


@router.get("/openapi.json", include_in_schema=False)
async def openapi(request: Request) -> Any:
    """This description."""
    return JSONResponse(request.app.openapi())
