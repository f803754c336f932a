"""Submissions and heartbeats a second of a real server on one core, its clients on the other, every commit durable.

The machine is shared with whatever else runs, so what is asked for is stated for each second of processor time that
the server used, and as a part of what a bare FastAPI + SQLAlchemy insert of one row gets in the same run.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest

from agents.protocol import GpuTypeOffer, Heartbeat, JoinRequest, NodeOffer, ProcessReport, ProcessState
from tests.control_world import job_document
from tests.perf.load import Connection, Figures, ServerProcess, measure, on_the_other_core

pytestmark = pytest.mark.perf

SECONDS = 4.0
CLIENTS = 48
AGENTS = 96
RUNNING = 48
SUBMITS_PER_S, HEARTBEATS_PER_S = 500.0, 1500.0
"""What a core of its own is to do on SQLite."""
SHARED = 0.5
"""On a machine whose caches and threads others use too, as much of that is asked for."""
LEAST_PART = {"sqlite": 0.25, "postgresql": 0.05}
"""Of what a bare insert gets: a submission is authenticated, parsed, audited, and stored with its history."""
BODY = json.dumps(job_document()).encode()


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def database(request: pytest.FixtureRequest) -> str:
    """A URL; empty for SQLite in the server's folder."""
    return "" if request.param == "sqlite" else str(request.getfixturevalue("postgres_url"))


@pytest.fixture
def server(database: str, tmp_path: Path) -> Iterator[ServerProcess]:
    settings = {"BACE_DATABASE_URL": database, "BACE_HEARTBEAT_INTERVAL_S": "2"}
    server = ServerProcess(tmp_path, ["service.cli.main", "server"], settings)
    try:
        server.wait()
        with on_the_other_core():
            yield server
    finally:
        server.end()


@pytest.fixture
async def admin(server: ServerProcess, tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    headers = {"Authorization": f"Bearer {(tmp_path / 'admin-token').read_text().strip()}"}
    async with httpx.AsyncClient(base_url=server.url, headers=headers, trust_env=False, timeout=60) as client:
        yield client


async def _bare(tmp_path: Path, database: str) -> Figures:
    folder = tmp_path / "bare"
    folder.mkdir()
    url = database or f"sqlite:///{folder / 'bare.db'}"
    server = ServerProcess(folder, ["tests.perf.bare_server"], {"BARE_DATABASE_URL": url})
    try:
        server.wait()
        connections = [Connection(server.port, "none") for _ in range(CLIENTS)]

        async def call(connection: Connection, _number: int) -> int:
            return (await connection.call("POST", "/rows", BODY))[0]

        return await measure(server, connections, call, SECONDS, 201)
    finally:
        server.end()


async def test_durable_submits(
    server: ServerProcess, admin: httpx.AsyncClient, database: str, tmp_path: Path
) -> None:
    token = admin.headers["Authorization"].removeprefix("Bearer ")
    connections = [Connection(server.port, token) for _ in range(CLIENTS)]

    async def call(connection: Connection, number: int) -> int:
        return (await connection.call("POST", "/v1/jobs", BODY, f"Idempotency-Key: key-{number}\r\n"))[0]

    figures = await measure(server, connections, call, SECONDS, 201)
    bare = await _bare(tmp_path, database)
    part = figures.per_cpu_s / bare.per_cpu_s
    where = database.partition("+")[0] or "sqlite"
    print(f"\nsubmits, {where}: {figures}\nbare insert: {bare}; ratio {part:.2f}")
    assert part >= LEAST_PART[where]
    assert where != "sqlite" or figures.per_cpu_s >= SHARED * SUBMITS_PER_S


@pytest.mark.parametrize("news", [False, True], ids=["quiet", "with-a-step"])
async def test_heartbeats(server: ServerProcess, admin: httpx.AsyncClient, database: str, news: bool) -> None:
    made = await admin.post("/v1/tokens", json={"name": "agents", "role": "agent"})
    token = made.json()["token"]
    connections = [Connection(server.port, token) for _ in range(CLIENTS)]
    keys = await _running(admin, connections)
    seqs = dict.fromkeys(keys, 0)

    async def call(connection: Connection, number: int) -> int:
        agent = f"agent-{number % AGENTS}"
        document = beat_document(agent, keys.get(agent), number)
        if news and agent in keys:
            seqs[agent] += 1
            document["reports"] = [_step(keys[agent], seqs[agent])]
        return (await connection.call("POST", "/agent/v1/heartbeat", json.dumps(document).encode()))[0]

    figures = await measure(server, connections, call, SECONDS, 200)
    kind = "half with a step" if news else "half with a process that runs"
    print(f"\nheartbeats, {database.partition('+')[0] or 'sqlite'}, {kind}: {figures}")
    assert database or news or figures.per_cpu_s >= SHARED * HEARTBEATS_PER_S


async def _running(admin: httpx.AsyncClient, connections: list[Connection]) -> dict[str, str]:
    """Agents of a node each; the first of them run a job of one stage. Agent → the key of its process."""
    link = connections[0]
    for number in range(AGENTS):
        status, body = await link.call("POST", "/agent/v1/join", join_document(number).encode())
        assert status == 200, body
    for _ in range(RUNNING):
        job = job_document(parallelism={"stages": 1}, training={"steps": 1_000_000})
        assert (await admin.post("/v1/jobs", json=job)).status_code == 201
    keys: dict[str, str] = {}
    ready: set[str] = set()
    for turn in range(200):
        for number in range(AGENTS):
            agent = f"agent-{number}"
            document = beat_document(agent, keys.get(agent), turn)
            status, body = await link.call("POST", "/agent/v1/heartbeat", json.dumps(document).encode())
            assert status == 200, body
            if agent in keys:
                ready.add(agent)
            for process in json.loads(body)["desired"]:
                keys[agent] = process["key"]
        if len(ready) == RUNNING:
            return keys
        await asyncio.sleep(0.1)
    raise AssertionError(f"{len(ready)} of {RUNNING} jobs run")


def beat_document(agent: str, key: str | None, number: int) -> dict[str, object]:
    """A heartbeat that tells of one process at most."""
    processes = (
        [] if key is None else [ProcessReport(key=key, state=ProcessState.READY).model_dump(mode="json")]
    )
    beat = Heartbeat(agent_id=agent, boot_id="boot-1", clock_s=1.8e9 + number)
    return {**beat.model_dump(mode="json"), "processes": processes}


def _step(key: str, seq: int) -> dict[str, object]:
    return {
        "kind": "step",
        "seq": seq,
        "key": key,
        "step": seq,
        "loss": 1.0,
        "step_time_s": 1.0,
        "tokens": 128,
        "at_s": 1.8e9,
    }


def join_document(number: int) -> str:
    """Of an agent with a node of one slot."""
    gpu = GpuTypeOffer(
        name="cpu-slot",
        memory_bytes=8e9,
        power_w=20.0,
        idle_w=5.0,
        sustained_flops=2e10,
        measured_at_s=1.8e9,
    )
    node = NodeOffer(
        node_id=f"node-{number}",
        region=f"region-{number % 8}",
        gpu=gpu,
        gpus=1,
        address=f"10.0.0.{number}",
        port_first=29500,
        port_last=29509,
    )
    request = JoinRequest(agent_id=f"agent-{number}", nodes=[node], agent_version="0.1.0", clock_s=1.8e9)
    return request.model_dump_json()
