"""Nobody keeps others out by asking too often, and whoever is told to wait is told for how long."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from service.adapters.compute import BoundedCompute, ThreadCompute
from service.rate_limits import TokenBuckets
from tests.api_server import Server, start_server
from tests.control_world import job_document

Start = Callable[..., Awaitable[Server]]


@pytest.fixture
async def start(app: FastAPI) -> AsyncIterator[Start]:
    """Servers with settings of the test's own."""
    started: list[Server] = []

    async def begin(**settings: Any) -> Server:
        started.append(await start_server(app, **settings))
        return started[-1]

    yield begin
    for server in started:
        server.world.engine.dispose()


def refused(answer: httpx.Response) -> int:
    """The seconds of a 429."""
    assert (answer.status_code, answer.json()["code"]) == (429, "too_many_requests"), answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    return int(answer.headers["Retry-After"])


def test_a_bucket_gives_its_burst_and_then_its_rate_and_takes_nothing_that_it_refuses() -> None:
    buckets = TokenBuckets(rate_per_s=2.0, burst=3.0, most_keys=10)
    assert [buckets.take("a", 100.0) for _ in range(4)] == [0.0, 0.0, 0.0, 0.5]
    assert buckets.take("a", 100.25) == pytest.approx(0.25)
    assert [buckets.take("a", 100.5), buckets.take("b", 100.5)] == [0.0, 0.0]
    assert buckets.take("a", 1e9, cost=50.0) == 0.0, "what costs more than the burst takes all of it"
    assert buckets.take("a", 1e9, cost=50.0) == pytest.approx(1.5)
    assert buckets.take("a", 1e9 - 50.0) == pytest.approx(0.5), "a clock that steps back gives nothing"


def test_buckets_are_bounded_and_a_rate_of_nothing_is_no_limit() -> None:
    buckets = TokenBuckets(rate_per_s=0.1, burst=1.0, most_keys=100)
    for number in range(1000):
        buckets.take(str(number), 1.0)
    assert len(buckets) == 100
    assert buckets.take("999", 1.0) > 0
    free = TokenBuckets(rate_per_s=0.0, burst=1.0, most_keys=100)
    assert [free.take("a", 1.0) for _ in range(5)] == [0.0] * 5
    assert len(free) == 0


async def test_a_token_that_asks_too_often_is_told_when_to_come_again_and_others_are_not(
    start: Start,
) -> None:
    server = await start(rate_limit_per_s=0.5, rate_limit_burst=4)
    async with server.client("nlp") as nlp, server.client("vision") as vision:
        answers = [await nlp.get("/v1/whoami") for _ in range(5)]
        assert [answer.status_code for answer in answers[:4]] == [200] * 4
        assert refused(answers[4]) == 2
        before = server.rows()
        assert refused(await nlp.post("/v1/jobs", json=job_document())) == 2
        assert server.rows() == before
        assert (await vision.get("/v1/whoami")).status_code == 200
        server.world.clock.advance(2.0)
        assert (await nlp.get("/v1/whoami")).status_code == 200
    page = server.world.services.metrics.exposition().decode()
    assert 'bace_rate_limited_total{limit="token"} 2.0' in page


async def test_agents_are_never_kept_waiting(start: Start) -> None:
    server = await start(rate_limit_per_s=0.001, rate_limit_burst=1)
    async with server.client("agent") as agent:
        for _ in range(10):
            assert (await agent.post("/agent/v1/heartbeat", json={})).status_code == 422


async def test_asking_the_planner_counts_for_more(start: Start) -> None:
    server = await start(rate_limit_per_s=1.0, rate_limit_burst=50)
    async with server.client("nlp") as nlp:
        codes = [(await nlp.post("/v1/plans", json=job_document())).status_code for _ in range(3)]
        assert codes == [200, 200, 429]
        assert (await nlp.get("/v1/whoami")).status_code == 200


async def test_guessing_tokens_from_one_address_ends_soon_and_locks_nobody_else_out(start: Start) -> None:
    server = await start(failed_logins_per_s=0.1, failed_logins_burst=5)
    async with (
        server.client("nlp", address="10.0.0.9") as known,
        server.client("vision", address="10.0.0.9") as newcomer,
        server.client("vision", address="10.0.0.8") as elsewhere,
        server.client(None, address="10.0.0.9") as guesser,
    ):
        assert (await known.get("/v1/whoami")).status_code == 200
        for number in range(5):
            answer = await guesser.get("/v1/jobs", headers={"Authorization": f"Bearer bace_{number}"})
            assert answer.status_code == 401
        reads = count_reads(server)
        guess = await guesser.get("/v1/jobs", headers={"Authorization": "Bearer bace_6"})
        assert refused(guess) == 10
        assert reads == [], "the database is not asked for a guess"
        server.world.clock.advance(3.0)  # longer than a token is remembered as good
        assert (await known.get("/v1/whoami")).status_code == 200
        assert refused(await newcomer.get("/v1/whoami")) > 0
        assert (await elsewhere.get("/v1/whoami")).status_code == 200
        assert (await guesser.get("/v1/jobs")).status_code == 401, "no token is no guess"
        server.world.clock.advance(10.0)
        assert (await newcomer.get("/v1/whoami")).status_code == 200


def count_reads(server: Server) -> list[str]:
    """Grows with every read of the database."""
    seen: list[str] = []
    read = server.world.services.db.read

    async def counted(work: Any) -> Any:
        seen.append(str(work))
        return await read(work)

    object.__setattr__(server.world.services.db, "read", counted)
    return seen


async def test_beyond_so_many_clients_at_once_only_agents_are_let_in(start: Start) -> None:
    server = await start(max_client_requests=2)
    services, gate, arrived = server.world.services, asyncio.Event(), asyncio.Semaphore(0)
    async with server.client("nlp") as nlp, server.client("agent") as agent:
        assert (await nlp.get("/v1/whoami")).status_code == 200  # both are known from now on
        assert (await agent.get("/v1/whoami")).status_code == 200
        read = services.db.read

        async def slow(work: Any) -> Any:
            arrived.release()
            await gate.wait()
            return await read(work)

        object.__setattr__(services.db, "read", slow)
        inside = [asyncio.create_task(nlp.get("/v1/jobs")) for _ in range(2)]
        for _ in inside:
            await arrived.acquire()
        assert refused(await nlp.get("/v1/whoami")) == 1
        assert (await agent.post("/agent/v1/heartbeat", json={})).status_code == 422
        assert (await nlp.get("/healthz")).status_code == 200
        gate.set()
        assert [(await task).status_code for task in inside] == [200, 200]
        assert (await nlp.get("/v1/whoami")).status_code == 200


async def test_only_so_many_questions_wait_for_the_planner_and_what_needs_no_plan_is_answered(
    start: Start,
) -> None:
    server = await start()
    services, gate, refusals = server.world.services, threading.Event(), []
    threads = ThreadCompute()
    object.__setattr__(services, "compute", BoundedCompute(threads, 3, lambda: refusals.append(1)))
    begun = asyncio.ensure_future(services.compute.run(gate.wait))
    asked = [begun, *(asyncio.ensure_future(services.compute.run(gate.wait)) for _ in range(2))]
    await asyncio.sleep(0)  # all three are inside
    async with server.client("nlp") as nlp:
        for path in ("/v1/plans", "/v1/schedules?placement=eu-north:1"):
            assert refused(await nlp.post(path, json=job_document())) == 5
        assert (await nlp.get("/v1/jobs")).status_code == 200
        assert (await nlp.post("/v1/jobs", json=job_document())).status_code == 201
        gate.set()
        await asyncio.gather(*asked)
        assert (await nlp.post("/v1/plans", json=job_document())).status_code == 200
    assert len(refusals) == 2
    threads.close()


async def test_one_token_has_at_most_half_of_the_places_for_questions_and_the_others_are_answered(
    start: Start,
) -> None:
    server = await start()
    services, gate = server.world.services, threading.Event()
    threads = ThreadCompute(threads=3)
    object.__setattr__(services, "compute", BoundedCompute(threads, 4, lambda: None))
    async with server.client("nlp") as nlp, server.client("vision") as vision:
        token = (await nlp.get("/v1/whoami")).json()["token_id"]
        asked = [asyncio.ensure_future(services.compute.run(gate.wait, token)) for _ in range(2)]
        await asyncio.sleep(0)  # both are inside
        try:
            answer = await nlp.post("/v1/plans", json=job_document())
            assert (await vision.post("/v1/plans", json=job_document(project="vision"))).status_code == 200
        finally:
            gate.set()
        await asyncio.gather(*asked)
        assert refused(answer) == 5
        assert "2 of this token's plans" in answer.text
        assert (await nlp.post("/v1/plans", json=job_document())).status_code == 200
    threads.close()


async def test_a_token_has_only_so_many_streams_and_a_place_is_free_when_one_ends(start: Start) -> None:
    server = await start(max_streams_per_token=2, max_client_requests=2)
    app, texts = server.app, server.tokens

    async def open_stream(name: str) -> tuple[int, asyncio.Task[None], asyncio.Event]:
        """Speaks ASGI itself: httpx's transport waits for the end of an answer."""
        status: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        gone = asyncio.Event()

        async def receive() -> dict[str, Any]:
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                status.set_result(message["status"])

        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": "GET",
            "path": "/v1/events",
            "raw_path": b"/v1/events",
            "query_string": b"",
            "root_path": "",
            "scheme": "http",
            "server": ("bace", 80),
            "client": ("127.0.0.1", 1),
            "headers": [(b"authorization", f"Bearer {texts[name]}".encode())],
            "state": {},
        }
        task: asyncio.Task[None] = asyncio.ensure_future(app(scope, receive, send))  # type: ignore[arg-type]
        return await status, task, gone

    opened = [await open_stream("nlp") for _ in range(2)]
    assert [status for status, _, _ in opened] == [200, 200]
    refused_status, task, gone = await open_stream("nlp")
    assert refused_status == 429
    gone.set()
    await task
    other_status, other_task, other_gone = await open_stream("vision")
    assert other_status == 200, "open streams take no place of requests"
    opened[0][2].set()
    await opened[0][1]
    again_status, again_task, again_gone = await open_stream("nlp")
    assert again_status == 200
    for gone_now, ended in ((opened[1][2], opened[1][1]), (other_gone, other_task), (again_gone, again_task)):
        gone_now.set()
        await ended
