"""A whole server in one process, spoken to over ASGI, with a token of every role."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import httpx
from fastapi import FastAPI
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from service import tokens
from service.access import Role
from service.authentication import Authenticator
from service.db.engine import make_engine
from service.db.tables import Base
from service.tokens import TokenRequest
from tests.control_world import ADMIN, World


@dataclass
class Server:
    """The application, its world, and the text of a token for each name."""

    app: FastAPI
    world: World
    tokens: dict[str, str]

    def stand(self) -> None:
        """Puts this world under the routes, which several servers share."""
        self.app.state.services = self.world.services
        self.app.state.authenticator = Authenticator(self.world.services)

    def client(
        self, name: str | None = "admin", *, raise_app_exceptions: bool = True, address: str = "127.0.0.1"
    ) -> httpx.AsyncClient:
        """A client with the token of that name (None: without any), at that address."""
        headers = {} if name is None else {"Authorization": f"Bearer {self.tokens[name]}"}
        return httpx.AsyncClient(
            transport=httpx.ASGITransport(
                self.app, raise_app_exceptions=raise_app_exceptions, client=(address, 40_000)
            ),
            base_url="http://bace",
            headers=headers,
        )

    def rows(self) -> dict[str, int]:
        """How many rows each table has."""
        with Session(self.world.engine) as session:
            return {
                name: session.scalar(select(func.count()).select_from(table)) or 0
                for name, table in Base.metadata.tables.items()
            }


TOKENS = {
    "admin": TokenRequest("admin", Role.ADMIN),
    "agent": TokenRequest("agent", Role.AGENT),
    "nlp": TokenRequest("nlp", Role.SUBMITTER, "nlp"),
    "vision": TokenRequest("vision", Role.SUBMITTER, "vision"),
    "nlp-admin": TokenRequest("nlp admin", Role.PROJECT_ADMIN, "nlp"),
    "nlp-viewer": TokenRequest("nlp viewer", Role.VIEWER, "nlp"),
    "viewer": TokenRequest("viewer", Role.VIEWER),
}


async def start_server(app: FastAPI, **settings: Any) -> Server:
    """A fresh world under the application's routes."""
    world = World(make_engine("sqlite://"), **settings)
    await world.start()
    texts = {
        name: (await tokens.create(world.services, ADMIN, request)).text for name, request in TOKENS.items()
    }
    server = Server(app, world, texts)
    server.stand()
    return server
