"""The application: routes, what stands around them, and the loops that run beside them."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Awaitable, Callable

import structlog
from fastapi import Depends, FastAPI

from service import web
from service.api import problems
from service.api.access import authorise
from service.api.audit_trail import AuditTrail
from service.api.gate import ClientGate
from service.api.middleware import BodyLimit, RequestScope
from service.api.routes import (
    access,
    accounts,
    agents,
    audit,
    health,
    history,
    jobs,
    links,
    nodes,
    plans,
    prices,
    projects,
    regions,
    schedules,
)
from service.authentication import Authenticator
from service.bookkeeping import Bookkeeping
from service.services import Services

VERSION = "0.1.0"
Background = Callable[[], Awaitable[None]]
"""Runs for as long as the application does; ended by cancellation."""
_log = structlog.get_logger("app")


def create_app(services: Services, background: Background | None = None) -> FastAPI:
    """The whole API over `services`. `background` is started with the application and cancelled at its end."""
    app = _application(services, background)
    # Routes are tried in this order, and most requests are heartbeats.
    for resource in (
        agents,
        jobs,
        plans,
        schedules,
        nodes,
        regions,
        links,
        prices,
        projects,
        accounts,
        access,
        audit,
        history,
        health,
    ):
        app.include_router(resource.router)
    web.mount(app)
    return app


def create_control_app(services: Services, background: Background) -> FastAPI:
    """Of a process that only runs the loops: whether it lives, and its metrics."""
    app = _application(services, background)
    app.include_router(health.router)
    return app


def _application(services: Services, background: Background | None) -> FastAPI:
    authenticator = Authenticator(services)
    books = Bookkeeping(services, authenticator)

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        tasks = [asyncio.ensure_future(work()) for work in (background, books.run) if work is not None]
        for task in tasks:
            task.add_done_callback(_stop_without_it)
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task
            await books.write()

    app = FastAPI(
        title="bacepipe",
        version=VERSION,
        summary="Schedules the training of large language models over GPU clusters in several regions.",
        lifespan=lifespan,
        dependencies=[Depends(authorise)],
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.services = services
    app.state.authenticator = authenticator
    problems.install(app)
    app.add_middleware(BodyLimit)
    app.add_middleware(ClientGate)
    app.add_middleware(AuditTrail)
    app.add_middleware(RequestScope)
    return app


def _stop_without_it(task: asyncio.Future[None]) -> None:
    """A server whose loops have ended by a defect would accept jobs and never run them: it ends instead."""
    if not task.cancelled():
        _log.critical("background_ended", exc_info=task.exception())
        signal.raise_signal(signal.SIGTERM)
