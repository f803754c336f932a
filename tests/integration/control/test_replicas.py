"""Three servers, one database: one leads, whoever dies or sleeps; a deposed leader changes nothing; streams go on."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import httpx
import pytest
from httpx_sse import connect_sse
from sqlalchemy import create_engine, text

from tests.conftest import missing
from tests.control_world import job_document
from tests.live_server import PATIENCE_S, Remote, RemoteAgent, Server

T = TypeVar("T")

LEASE_S = 3.0
pytestmark = [pytest.mark.postgres, pytest.mark.redis, pytest.mark.timeout(280)]


class Follower(threading.Thread):
    """Follows the events at one server, coming back with the last number it saw whenever the stream ends."""

    def __init__(self, server: Server) -> None:
        super().__init__(daemon=True)
        self._client = server.client()
        self._enough = threading.Event()
        self.seen: list[int] = []

    def run(self) -> None:
        while not self._enough.is_set():
            headers = {"Last-Event-ID": str(self.seen[-1])} if self.seen else {}
            with (
                contextlib.suppress(httpx.HTTPError),
                connect_sse(self._client, "GET", "/v1/events", headers=headers, timeout=3) as source,
            ):
                for message in source.iter_sse():
                    assert message.event != "error", message.data
                    self.seen.append(int(message.id))
                    if self._enough.is_set():
                        break

    def stop(self) -> None:
        self._enough.set()
        self.join(PATIENCE_S)
        self._client.close()


class Redis:
    """A server of the test's own, which it may stop."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.url = f"redis://127.0.0.1:{port}/0"
        arguments = [
            "redis-server",
            "--port",
            str(port),
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            "--dir",
            str(folder),
        ]
        self.process = subprocess.Popen(arguments, stdout=subprocess.DEVNULL)

    def end(self) -> None:
        self.process.kill()
        self.process.wait(10)


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[Redis]:
    if shutil.which("redis-server") is None:
        missing("no redis-server on the PATH: none of the test's own can be stopped")
    redis = Redis(tmp_path)
    yield redis
    redis.end()


@pytest.fixture
def servers(postgres_url: str, redis: Redis, tmp_path: Path) -> Iterator[list[Server]]:
    settings = {
        "BACE_REDIS_URL": redis.url,
        "BACE_LEADER_LEASE_S": str(LEASE_S),
        "BACE_PLAN_INTERVAL_S": "1",
        "BACE_TICK_S": "0.2",
    }
    servers = [Server(tmp_path, postgres_url, **settings) for _ in range(3)]
    try:
        servers[0].start()  # makes the tables and the first token
        for server in servers[1:]:
            server.launch()
        for server in servers[1:]:
            server.wait()
        yield servers
    finally:
        for server in servers:
            server.kill()


def _until(what: str, question: Callable[[], T]) -> T:
    end_s = time.monotonic() + PATIENCE_S
    while not (answer := question()):
        assert time.monotonic() < end_s, f"never: {what}"
        time.sleep(0.1)
    return answer


def _metric(server: Server, name: str) -> float:
    with server.client() as client:
        page = client.get("/metrics").text
    found = re.search(rf"^{name} (\S+)$", page, re.MULTILINE)
    return float(found.group(1)) if found else 0.0


def _leader(servers: list[Server]) -> Server:
    return _until(
        "one of them leads",
        lambda: next((server for server in servers if _metric(server, "bace_leader") == 1), None),
    )


async def _started(agent: RemoteAgent, count: int) -> None:
    """The agent beats until it has been told to start so many processes, and says that they are ready."""
    end_s = time.monotonic() + PATIENCE_S
    while len(agent.started) < count:
        assert time.monotonic() < end_s, "the job was not launched"
        await agent.beat()
        await asyncio.sleep(0.05)
    agent.ready()
    await agent.beat()


def _submit(server: Server, name: str) -> str:
    with server.client() as client:
        answer = client.post("/v1/jobs", json=job_document(name=name, training={"steps": 1000}))
    assert answer.status_code == 201, answer.text
    return str(answer.json()["job_id"])


async def test_whoever_dies_or_sleeps_one_leads_and_streams_go_on(
    servers: list[Server], redis: Redis, postgres_url: str
) -> None:
    first = _leader(servers)
    others = [server for server in servers if server is not first]
    epoch = _metric(first, "bace_leader_epoch")
    with others[0].client() as admin:
        token = admin.post("/v1/tokens", json={"name": "agents", "role": "agent"}).json()["token"]
    agent = RemoteAgent(Remote(), "eu-north", slots=9)  # type: ignore[arg-type]
    agent.url, agent.token = others[0].url, token
    await agent.join()
    follower = Follower(others[1])
    follower.start()
    jobs = [_submit(others[0], "before")]
    await _started(agent, 3)

    # The leader dies: another leads, under a later epoch, and evicts nobody.
    first.kill()
    second = _leader(others)
    assert _metric(second, "bace_leader_epoch") == epoch + 1
    api = next(server for server in others if server is not second)
    agent.url = api.url
    jobs.append(_submit(api, "after-a-death"))
    await _started(agent, 6)

    # The leader sleeps for longer than its lease: another leads; awake again, it finds itself deposed.
    first.start()
    second.signal(signal.SIGSTOP)
    awake = [server for server in servers if server is not second]
    third = _leader(awake)
    assert _metric(third, "bace_leader_epoch") == epoch + 2
    jobs.append(_submit(api, "while-one-sleeps"))
    await _started(agent, 9)
    second.signal(signal.SIGCONT)
    _until("its writes are refused", lambda: _metric(second, "bace_fenced_writes_total") >= 1)
    _until("it knows", lambda: _metric(second, "bace_leader") == 0)
    assert _metric(third, "bace_leader") == 1

    # Without Redis everything goes on, woken by its interval.
    redis.end()
    with api.client() as client:
        cancelled = client.post(f"/v1/jobs/{jobs[0]}/cancel")
        assert cancelled.status_code == 200, cancelled.text
        end_s = time.monotonic() + PATIENCE_S
        while client.get(f"/v1/jobs/{jobs[0]}").json()["state"] != "cancelled":
            assert time.monotonic() < end_s
            await agent.beat()
        states = {job: client.get(f"/v1/jobs/{job}").json() for job in jobs[1:]}
        nodes = client.get("/v1/nodes").json()["items"]
    assert {(job["state"], job["generation"]) for job in states.values()} == {("running", 1)}
    assert [node["state"] for node in nodes] == ["ready"]
    assert len(agent.started) == len(set(agent.started)) == 9

    rows = _rows(postgres_url)
    _until("the stream has everything", lambda: len(follower.seen) >= len(rows["events"]))
    follower.stop()
    assert follower.seen[: len(rows["events"])] == rows["events"], "no gap, nothing twice, in order"
    assert rows["epochs"] == [epoch, epoch + 1, epoch + 2], "each job by whoever led then"
    assert not rows["lost"]


def _rows(url: str) -> dict[str, Any]:
    engine = create_engine(url)
    with engine.connect() as connection:
        events = connection.execute(text("SELECT seq, kind, data FROM events ORDER BY seq")).all()
        epochs = (
            connection.execute(text("SELECT epoch FROM allocations ORDER BY created_at_s")).scalars().all()
        )
    engine.dispose()
    return {
        "events": [seq for seq, _, _ in events],
        "epochs": list(epochs),
        "lost": [json.dumps(data) for _, kind, data in events if kind in ("node.lost", "process.lost")],
    }
