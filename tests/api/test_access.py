"""Closed by default, and tenants apart: every route against every role, tokens that end, others' objects unseen."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import pytest
from fastapi import FastAPI
from fastapi.routing import APIRoute
from sqlalchemy import select
from sqlalchemy.orm import Session

from service.access import Role, sha256_of
from service.api.access import ACCESS, PUBLIC
from service.db.tables import Base
from tests.api_server import Server
from tests.control_world import job_document

NOBODY = "nobody"
TOKEN_OF = {
    Role.ADMIN: "admin",
    Role.PROJECT_ADMIN: "nlp-admin",
    Role.SUBMITTER: "nlp",
    Role.VIEWER: "viewer",
    Role.AGENT: "agent",
}
OPEN_ENDED = ("/v1/events",)


def api_routes(app: FastAPI) -> Iterator[APIRoute]:
    """Every route of the application, those of included routers too."""
    pending = list(app.routes)
    while pending:
        route = pending.pop()
        if isinstance(route, APIRoute):
            yield route
        else:
            pending += getattr(getattr(route, "original_router", route), "routes", [])


def operations(app: FastAPI) -> set[tuple[str, str]]:
    """(method, path) of every route, as the server itself would match it."""
    described = {
        (method.upper(), path) for path, methods in app.openapi()["paths"].items() for method in methods
    }
    return described | {("GET", "/openapi.json"), ("GET", "/")}


def test_every_route_is_in_the_table_of_roles_and_the_table_names_only_routes(app: FastAPI) -> None:
    assert operations(app) == set(ACCESS) | PUBLIC


def test_every_route_and_what_it_depends_on_is_async_so_that_no_thread_pool_hides_behind_it(
    app: FastAPI,
) -> None:
    routes = list(api_routes(app))
    assert len(routes) >= len(ACCESS)
    blocking = set()
    pending = [route.dependant for route in routes]
    while pending:
        dependant = pending.pop()
        pending += dependant.dependencies
        if dependant.call is not None and not inspect.iscoroutinefunction(dependant.call):
            blocking.add(str(dependant.call))
    assert blocking == set()


@pytest.mark.parametrize("role", [*Role, NOBODY])
async def test_each_role_opens_what_the_table_says_and_nothing_else(standing: Server, role: str) -> None:
    standing.stand()
    name = None if role == NOBODY else TOKEN_OF[Role(role)]
    async with standing.client(name) as client:
        for (method, path), allowed in ACCESS.items():
            if path in OPEN_ENDED and role in allowed:
                continue  # a stream does not end by itself; tests of its own look at it
            address = path.replace("{", "no-").replace("}", "")
            answer = await client.request(method, address)
            what = f"{role} {method} {path}: {answer.status_code}"
            if role == NOBODY:
                assert answer.status_code == 401, what
                assert answer.headers["WWW-Authenticate"].startswith("Bearer"), what
            elif role not in allowed:
                assert (answer.status_code, answer.json()["code"]) == (403, "forbidden"), what
            else:
                assert answer.status_code not in (401, 403), what
        for method, path in PUBLIC:
            assert (await client.request(method, path)).status_code in (200, 503)


@pytest.mark.parametrize(
    "header", ["", "Bearer", "Bearer ", "Basic YWRtaW46", "Bearer bace_wrong", "Bearer \udcff"]
)
async def test_what_is_no_token_opens_nothing(server: Server, header: str) -> None:
    async with server.client(None) as client:
        value = header.encode("utf-8", "surrogateescape")
        answer = await client.get("/v1/jobs", headers=[(b"Authorization", value)] if header else [])
    assert (answer.status_code, answer.json()["code"]) == (401, "unauthenticated")


async def test_a_token_is_shown_once_and_stored_as_a_hash(server: Server) -> None:
    async with server.client() as admin:
        made = (
            await admin.post("/v1/tokens", json={"name": "ci", "role": "submitter", "project": "nlp"})
        ).json()
        listed = await admin.get("/v1/tokens")
    text = made["token"]
    assert text.startswith("bace_")
    assert text not in listed.text
    stored = {token["token_id"]: token for token in listed.json()["items"]}[made["token_id"]]
    assert text.startswith(stored["prefix"])
    with Session(server.world.engine) as session:
        everything = [
            repr(row) for table in Base.metadata.tables.values() for row in session.execute(select(table))
        ]
    assert any(sha256_of(text) in row for row in everything)
    assert not any(text in row for row in everything)


async def test_a_revoked_and_an_expired_token_open_nothing(server: Server) -> None:
    async with server.client() as admin:
        for name, more in (("short", {"expires_in_s": 60.0}), ("revoked", {})):
            body = {"name": name, "role": "viewer", **more}
            made = (await admin.post("/v1/tokens", json=body)).json()
            server.tokens[name] = made["token"]
            async with server.client(name) as client:
                assert (await client.get("/v1/jobs")).status_code == 200
                if name == "short":
                    server.world.clock.advance(61.0)
                else:
                    revoked = await admin.post(f"/v1/tokens/{made['token_id']}/revoke")
                    assert revoked.json()["revoked_at_s"] is not None
                assert (await client.get("/v1/jobs")).status_code == 401


async def test_others_jobs_are_not_there(server: Server) -> None:
    async with server.client("nlp") as nlp:
        job_id = (await nlp.post("/v1/jobs", json=job_document())).json()["job_id"]
    async with server.client("vision") as vision:
        for method, path in (
            ("GET", ""),
            ("GET", "/explain"),
            ("GET", "/logs"),
            ("GET", "/steps"),
            ("GET", "/events"),
            ("POST", "/cancel"),
        ):
            answer = await vision.request(method, f"/v1/jobs/{job_id}{path}")
            assert (answer.status_code, answer.json()["code"]) == (404, "not_found"), path
        assert (await vision.get("/v1/jobs")).json()["items"] == []
        assert [entry["project"] for entry in (await vision.get("/v1/projects")).json()["items"]] == [
            "vision"
        ]
        foreign = await vision.post("/v1/jobs", json=job_document(project="nlp"))
        assert (foreign.status_code, foreign.json()["errors"][0]["pointer"]) == (403, "/project")
    async with server.client("nlp-viewer") as viewer:
        assert (await viewer.get(f"/v1/jobs/{job_id}")).status_code == 200
        assert (await viewer.post(f"/v1/jobs/{job_id}/cancel")).status_code == 403


async def test_the_caller_is_told_who_it_is_and_gets_its_request_id_back(server: Server) -> None:
    async with server.client("nlp") as client:
        answer = await client.get("/v1/whoami", headers={"X-Request-Id": "mine-42"})
        forged = await client.get("/v1/whoami", headers={"X-Request-Id": "a b\tc"})
    assert answer.headers["X-Request-Id"] == "mine-42"
    assert forged.headers["X-Request-Id"].startswith("req-")
    assert {key: answer.json()[key] for key in ("name", "role", "project")} == {
        "name": "nlp",
        "role": "submitter",
        "project": "nlp",
    }
