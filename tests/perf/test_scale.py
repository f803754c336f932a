"""A large cluster on one server: 5,000 agents, 10,000 jobs that wait or run, its answers while it plans for them, and
a thousand cancellations at once.

What is asserted holds on any machine: memory, and that nobody is refused. Latencies (p99 is to stay below 250 ms) are
printed, for they are those of a machine that nobody shares.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import httpx
import pytest

from tests.control_world import job_document
from tests.perf.load import Connection, ServerProcess, measure, on_the_other_core
from tests.perf.test_load import beat_document, join_document

T = TypeVar("T")
pytestmark = [pytest.mark.perf, pytest.mark.timeout(900)]

AGENTS, JOBS, CANCELS = 5_000, 10_000, 1_000
CLIENTS = 16
SECONDS = 20.0
"""Several planning rounds, one after the other."""
MEMORY_BYTES = 1.5 * 2**30


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[ServerProcess]:
    settings = {"BACE_RATE_LIMIT_PER_S": "0", "BACE_NODE_LOST_AFTER_S": "3600"}
    server = ServerProcess(tmp_path, ["service.cli.main", "server"], settings)
    try:
        server.wait()
        with on_the_other_core():
            yield server
    finally:
        server.end()


async def test_a_large_cluster(server: ServerProcess, tmp_path: Path) -> None:
    admin = (tmp_path / "admin-token").read_text().strip()
    headers = {"Authorization": f"Bearer {admin}"}
    async with httpx.AsyncClient(base_url=server.url, headers=headers, trust_env=False, timeout=60) as client:
        made = await client.post("/v1/tokens", json={"name": "agents", "role": "agent"})
    agents = made.json()["token"]
    await _each(server, agents, range(AGENTS), _join)
    joined_s = server.cpu_s()
    job_ids = await _each(server, admin, range(JOBS), _submit)
    submitted_s = server.cpu_s()
    print(
        f"\n{AGENTS:,} agents and {JOBS:,} jobs took {joined_s:.0f} + {submitted_s - joined_s:.0f} s of the "
        f"processor, {server.usage.memory_info().rss / 2**20:.0f} MiB"
    )
    for name, token, call in (
        ("heartbeats", agents, _heartbeat),
        ("a job", admin, lambda link, number: _get(link, f"/v1/jobs/{job_ids[number % JOBS]}")),
        ("jobs?limit=20", admin, lambda link, _: _get(link, "/v1/jobs?limit=20")),
    ):
        connections = [Connection(server.port, token) for _ in range(CLIENTS)]
        figures = await measure(server, connections, call, SECONDS / 3, 200)
        print(f"while it plans, {name}: {figures}")
    cancelled = job_ids[-CANCELS:]
    links = [Connection(server.port, admin) for _ in cancelled]
    answers = await asyncio.gather(*(_cancel(link, job) for link, job in zip(links, cancelled, strict=True)))
    for link in links:
        link.close()
    print(f"{CANCELS:,} cancellations at once: {sorted(set(answers))}")
    assert set(answers) == {200}
    memory = server.usage.memory_info().rss
    print(f"{memory / 2**20:.0f} MiB in the end")
    assert memory < MEMORY_BYTES


async def _each(
    server: ServerProcess, token: str, numbers: range, call: Callable[[Connection, int], Awaitable[T]]
) -> list[T]:
    """What `call` gives for each number, some at a time."""
    pending, found = iter(numbers), dict[int, T]()

    async def client() -> None:
        link = Connection(server.port, token)
        for number in pending:
            found[number] = await call(link, number)
        link.close()

    await asyncio.gather(*(client() for _ in range(CLIENTS)))
    return [found[number] for number in numbers]


async def _join(link: Connection, number: int) -> None:
    status, body = await link.call("POST", "/agent/v1/join", join_document(number).encode())
    assert status == 200, body


async def _submit(link: Connection, number: int) -> str:
    job = job_document(
        name=f"job-{number}", parallelism={"stages": 1 + number % 3}, training={"steps": 100_000}
    )
    status, body = await link.call("POST", "/v1/jobs", json.dumps(job).encode())
    assert status == 201, body
    return str(json.loads(body)["job_id"])


async def _heartbeat(link: Connection, number: int) -> int:
    document = beat_document(f"agent-{number % AGENTS}", None, number)
    return (await link.call("POST", "/agent/v1/heartbeat", json.dumps(document).encode()))[0]


async def _get(link: Connection, path: str) -> int:
    return (await link.call("GET", path))[0]


async def _cancel(link: Connection, job_id: str) -> int:
    return (await link.call("POST", f"/v1/jobs/{job_id}/cancel"))[0]
