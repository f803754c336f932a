"""`kill -9` of the server at any moment: nothing that was acknowledged is lost, and what runs goes on."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.control_world import job_document
from tests.live_server import PATIENCE_S, Remote, RemoteAgent, Server

KILLS = 2


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
