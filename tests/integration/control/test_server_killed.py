"""`kill -9` of the server at any moment: nothing that was acknowledged is lost, and what runs goes on."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from agents.protocol import Heartbeat, HeartbeatReply, JoinReply, JoinRequest
from tests.control_world import FakeAgent, job_document

PATIENCE_S = 90.0
KILLS = 2
CLIENT = httpx.Client(verify=False)  # noqa: S501 - loopback, without TLS; trust stores are slow to load


class RealClock:
    def now(self) -> float:
        return time.time()

    def advance(self, seconds: float) -> None:
        """Real time passes by itself."""


class Remote:
    """What a FakeAgent needs of its world, where the server is another process."""

    clock = RealClock()


class RemoteAgent(FakeAgent):
    """The same agent, over HTTP."""

    url = ""
    token = ""

    async def send_join(self, request: JoinRequest) -> JoinReply:
        return JoinReply.model_validate_json(self._post("/agent/v1/join", request.model_dump_json()))

    async def send(self, beat: Heartbeat) -> HeartbeatReply:
        return HeartbeatReply.model_validate_json(self._post("/agent/v1/heartbeat", beat.model_dump_json()))

    def _post(self, path: str, body: str) -> bytes:
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        answer = CLIENT.post(f"{self.url}{path}", content=body, headers=headers, timeout=30)
        assert answer.status_code == 200, answer.text
        return answer.content


class Server:
    """`bace server` as a process that can be killed and started again."""

    def __init__(self, home: Path, database_url: str) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self._port}"
        self._home = home
        self._environment = {
            **os.environ,
            "BACE_HOME": str(home),
            "BACE_DATABASE_URL": database_url,
            "BACE_LEADER_LEASE_S": "3",
            "BACE_BILL_INTERVAL_S": "1",
        }
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        arguments = [sys.executable, "-m", "service.cli.main", "server", "--port", str(self._port)]
        log = (self._home / "server.log").open("ab")
        with log:
            self._process = subprocess.Popen(arguments, env=self._environment, stdout=log, stderr=log)
        end_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < end_s:
            with contextlib.suppress(httpx.HTTPError):
                if CLIENT.get(f"{self.url}/healthz", timeout=2).status_code == 200:
                    return
            assert self._process.poll() is None, (self._home / "server.log").read_text()
            time.sleep(0.2)
        pytest.fail((self._home / "server.log").read_text())

    def kill(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait(10)
            self._process = None

    def client(self, token: str | None = None) -> httpx.Client:
        token = token or (self._home / "admin-token").read_text().strip()
        headers = {"Authorization": f"Bearer {token}"}
        return httpx.Client(base_url=self.url, headers=headers, timeout=30, verify=False)  # noqa: S501


class Submitter(threading.Thread):
    """Submits one job after the other, each under its own key, until it is told to stop."""

    def __init__(self, server: Server) -> None:
        super().__init__(daemon=True)
        self._client = server.client()
        self._enough = threading.Event()
        self.acknowledged: dict[str, str] = {}

    def run(self) -> None:
        number = 0
        while not self._enough.is_set():
            key = f"key-{number}"
            document = job_document(name=f"queued-{number}")
            try:
                answer = self._client.post("/v1/jobs", json=document, headers={"Idempotency-Key": key})
            except httpx.HTTPError:  # no answer: the same again
                self._enough.wait(0.05)
                continue
            if answer.status_code == 201:
                self.acknowledged[key] = answer.json()["job_id"]
                number += 1
        self._client.close()

    def wait_for(self, count: int) -> None:
        end_s = time.monotonic() + PATIENCE_S
        while len(self.acknowledged) < count:
            assert time.monotonic() < end_s, f"only {len(self.acknowledged)} of {count} were acknowledged"
            time.sleep(0.005)

    def stop(self) -> None:
        self._enough.set()
        self.join(PATIENCE_S)


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    url = "" if request.param == "sqlite" else request.getfixturevalue("postgres_url")
    server = Server(tmp_path, url)
    server.start()
    yield server
    server.kill()


@pytest.mark.timeout(280)
async def test_what_was_acknowledged_is_there_and_what_runs_goes_on(server: Server) -> None:
    pace = random.Random(7)
    admin = server.client()
    made = admin.post("/v1/tokens", json={"name": "agents", "role": "agent"})
    assert made.status_code == 201, made.text
    agent = RemoteAgent(Remote(), "eu-north", slots=3)  # type: ignore[arg-type]
    agent.url, agent.token = server.url, made.json()["token"]
    await agent.join()
    running = admin.post("/v1/jobs", json=job_document(name="running", training={"steps": 1000})).json()[
        "job_id"
    ]
    end_s = time.monotonic() + PATIENCE_S
    while len(agent.started) < 3:
        assert time.monotonic() < end_s, "the job was not launched"
        await agent.beat()
        await asyncio.sleep(0.02)
    agent.ready()
    await agent.beat()
    first_keys = list(agent.started)

    submitter = Submitter(server)
    submitter.start()
    steps = 0
    for _ in range(KILLS):
        submitter.wait_for(len(submitter.acknowledged) + pace.randint(2, 12))
        await asyncio.sleep(pace.uniform(0.0, 0.02))  # any moment of a submission
        server.kill()
        agent.step(steps + 1, steps + 2)
        steps += 2
        with pytest.raises(httpx.HTTPError):
            await agent.beat()
        assert len(agent.alive()) == 3
        server.start()
        reply = await agent.beat()
        assert {process.key for process in reply.desired} == set(first_keys), "what runs is still desired"
        assert agent.unsent == []
    submitter.wait_for(len(submitter.acknowledged) + 1)
    submitter.stop()

    assert agent.started == first_keys, "nothing was started twice"
    job = admin.get(f"/v1/jobs/{running}").json()
    assert (job["state"], job["generation"], job["reported_steps"]) == ("running", 1, steps)
    series = admin.get(f"/v1/jobs/{running}/steps").json()["items"]
    assert [step["step"] for step in series] == list(range(1, steps + 1))
    ids = set()
    for job_id in submitter.acknowledged.values():
        answer = admin.get(f"/v1/jobs/{job_id}")
        assert answer.status_code == 200, f"{job_id} was acknowledged and is lost"
        ids.add(answer.json()["job_id"])
    assert len(ids) == len(submitter.acknowledged), "a key stands for one job"
    admin.close()
