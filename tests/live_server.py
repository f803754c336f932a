"""Servers as processes that can be killed, stopped and started again, and agents that speak to them over HTTP."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from agents.protocol import Heartbeat, HeartbeatReply, JoinReply, JoinRequest
from tests.control_world import FakeAgent

PATIENCE_S = 90.0
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

    def __init__(self, home: Path, database_url: str, **settings: str) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self._port}"
        self.log = home / f"server-{self._port}.log"
        self._home = home
        self._environment = {
            **os.environ,
            "BACE_HOME": str(home),
            "BACE_DATABASE_URL": database_url,
            "BACE_LEADER_LEASE_S": "3",
            "BACE_BILL_INTERVAL_S": "1",
            **settings,
        }
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.launch()
        self.wait()

    def launch(self) -> None:
        arguments = [sys.executable, "-m", "service.cli.main", "server", "--port", str(self._port)]
        log = self.log.open("ab")
        with log:
            self._process = subprocess.Popen(arguments, env=self._environment, stdout=log, stderr=log)

    def wait(self) -> None:
        """Until it answers."""
        assert self._process is not None
        end_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < end_s:
            with contextlib.suppress(httpx.HTTPError):
                if CLIENT.get(f"{self.url}/healthz", timeout=2).status_code == 200:
                    return
            assert self._process.poll() is None, self.log.read_text()
            time.sleep(0.2)
        pytest.fail(self.log.read_text())

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait(10)
            self._process = None

    def client(self, token: str | None = None) -> httpx.Client:
        token = token or (self._home / "admin-token").read_text().strip()
        headers = {"Authorization": f"Bearer {token}"}
        return httpx.Client(base_url=self.url, headers=headers, timeout=30, verify=False)  # noqa: S501
