"""A server for each test, and clients with the tokens that most tests use."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator

import httpx
import pytest
import structlog
from fastapi import FastAPI

from service.app import create_app
from service.db.engine import make_engine
from tests.api_server import Server, start_server
from tests.control_world import World


@pytest.fixture(scope="session", autouse=True)
def quiet_log() -> Iterator[None]:
    """Nobody reads the log here, and tracebacks are slow to draw."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield
    structlog.reset_defaults()


@pytest.fixture(scope="session")
def app() -> FastAPI:
    """The routes, made once; each test puts its own services under them."""
    return create_app(World(make_engine("sqlite://")).services)


@pytest.fixture
async def server(app: FastAPI) -> AsyncIterator[Server]:
    """A server of the test's own."""
    server = await start_server(app)
    yield server
    server.world.engine.dispose()


@pytest.fixture(scope="module")
def standing(app: FastAPI) -> Iterator[Server]:
    """One server for all tests of a module that store nothing."""
    server = asyncio.run(start_server(app))
    yield server
    server.world.engine.dispose()


@pytest.fixture
async def admin(server: Server) -> AsyncIterator[httpx.AsyncClient]:
    async with server.client() as client:
        yield client


@pytest.fixture
async def nlp(server: Server) -> AsyncIterator[httpx.AsyncClient]:
    """A submitter of the project nlp."""
    async with server.client("nlp") as client:
        yield client
