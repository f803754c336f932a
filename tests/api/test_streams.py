"""Streams over a real connection: woken at once, resumable by number, and over when their token is."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest
import uvicorn
from httpx_sse import ServerSentEvent, aconnect_sse

from tests.api_server import Server
from tests.control_world import job_document

PATIENCE_S = 30.0


@asynccontextmanager
async def listening(server: Server) -> AsyncIterator[str]:
    """The application on a free port of loopback."""
    config = uvicorn.Config(server.app, port=0, log_config=None, lifespan="off", timeout_graceful_shutdown=1)
    process = uvicorn.Server(config)
    serving = asyncio.ensure_future(process.serve())
    while not process.started:  # noqa: ASYNC110 - uvicorn offers no event to wait for
        await asyncio.sleep(0.01)
    port = process.servers[0].sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.should_exit = True
        await serving


@asynccontextmanager
async def following(
    server: Server, url: str, name: str, path: str, **headers: str
) -> AsyncIterator[AsyncIterator[ServerSentEvent]]:
    headers["Authorization"] = f"Bearer {server.tokens[name]}"
    async with (
        asyncio.timeout(PATIENCE_S),
        httpx.AsyncClient(base_url=url, headers=headers, trust_env=False, timeout=PATIENCE_S) as client,
        aconnect_sse(client, "GET", path) as source,
    ):
        assert source.response.status_code == 200
        yield source.aiter_sse()


async def test_events_arrive_as_they_happen_and_a_stream_resumes_where_it_was(
    server: Server, nlp: httpx.AsyncClient
) -> None:
    async with listening(server) as url:
        async with following(server, url, "nlp", "/v1/events") as events:
            job_id = (await nlp.post("/v1/jobs", json=job_document())).json()["job_id"]
            queued = await _next(events, "job.queued")
            assert (json.loads(queued.data)["object_id"], queued.id) == (
                job_id,
                str(json.loads(queued.data)["seq"]),
            )
        await nlp.post(f"/v1/jobs/{job_id}/cancel")
        resume = {"Last-Event-ID": queued.id}
        async with following(server, url, "nlp", "/v1/events", **resume) as events:
            assert (await anext(events)).event == "job.cancelled", "nothing twice, nothing left out"


async def test_events_of_other_projects_are_not_told(server: Server, nlp: httpx.AsyncClient) -> None:
    async with listening(server) as url, following(server, url, "vision", "/v1/events") as events:
        await nlp.post("/v1/jobs", json=job_document())
        async with server.client("vision") as vision:
            mine = (await vision.post("/v1/jobs", json=job_document(project="vision"))).json()["job_id"]
        first = await _next(events, "job.queued")
        assert json.loads(first.data)["object_id"] == mine


async def test_a_stream_ends_when_its_token_is_revoked(server: Server, nlp: httpx.AsyncClient) -> None:
    async with server.client() as admin, listening(server) as url:
        body = {"name": "short", "role": "viewer"}
        made = (await admin.post("/v1/tokens", json=body)).json()
        server.tokens["short"] = made["token"]
        async with following(server, url, "short", "/v1/events") as events:
            await _next(events, "token.created")
            await admin.post(f"/v1/tokens/{made['token_id']}/revoke")
            await nlp.post("/v1/jobs", json=job_document())
            over = await _next(events, "error")
            assert json.loads(over.data)["code"] == "unauthenticated"
            with pytest.raises(StopAsyncIteration):
                await anext(events)


@pytest.mark.parametrize("end", ["disabled", "lowered", "rotated"])
async def test_a_stream_ends_when_its_account_or_its_secret_does(
    server: Server, nlp: httpx.AsyncClient, end: str
) -> None:
    async with server.client() as admin, listening(server) as url:
        role = {"role": "submitter", "project": "nlp"}
        await admin.post("/v1/accounts", json={"name": "ci", "kind": "service", **role})
        made = (await admin.post("/v1/tokens", json={"name": "ci", "account": "ci", **role})).json()
        server.tokens["ci"] = made["token"]
        async with following(server, url, "ci", "/v1/events") as events:
            await _next(events, "token.created")
            if end == "disabled":
                await admin.post("/v1/accounts/ci/disable")
            elif end == "lowered":
                await admin.put("/v1/accounts/ci/roles/nlp", json={"role": "viewer"})
            else:
                await admin.post(f"/v1/tokens/{made['token_id']}/rotate", json={"overlap_s": 0.0})
            await nlp.post("/v1/jobs", json=job_document())
            over = await _next(events, "error")
            assert json.loads(over.data)["code"] == "unauthenticated"


async def _next(events: AsyncIterator[ServerSentEvent], kind: str) -> ServerSentEvent:
    async for event in events:
        if event.event == kind:
            return event
    raise AssertionError(f"the stream ended without {kind}")
