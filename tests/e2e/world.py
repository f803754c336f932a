"""A world of real processes: a server, agents, stage workers; each can be killed as a power cut would."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import httpx
import psutil
import pytest

Document = dict[str, Any]
T = TypeVar("T")

ROOT = Path(__file__).parents[2]
"""Where a program of the tests' own is found from."""
REGIONS = ("eu-west-2", "eu-west-3", "eu-central-1")

SETTINGS = {
    "BACE_HEARTBEAT_INTERVAL_S": "0.3",
    "BACE_PLAN_INTERVAL_S": "1",
    "BACE_TICK_S": "0.3",
    "BACE_BILL_INTERVAL_S": "1",
    "BACE_LEASE_S": "60",
    "BACE_MAX_STOP_GRACE_S": "5",
    "BACE_NODE_LOST_AFTER_S": "75",
    "BACE_RETRY_BACKOFF_S": "0.5",
    "BACE_REGION_COOLDOWN_S": "2",
}


def lived_in(world: World) -> Iterator[World]:
    """The world with a server that knows three regions, their links and prices; no agent yet. It is ended at last."""
    try:
        world.start_server()
        for region in REGIONS:
            world.put(f"/v1/regions/{region}", {"pue": 1.2, "uplink_bps": 40e9, "downlink_bps": 40e9})
        for src in REGIONS:
            for dst in REGIONS:
                if src != dst:
                    world.put(f"/v1/links/{src}/{dst}", {"capacity_bps": 25e9, "latency_s": 0.005})
                    world.put("/v1/prices", {"kind": "egress", "region": src, "dst": dst, "value": 0.02})
        for region in REGIONS:
            world.put("/v1/prices", {"kind": "electricity", "region": region, "value": 0.1})
        yield world
    finally:
        world.end()


class World:
    """Starts and kills. Everything stands in `folder`, and nothing outlives `end`."""

    def __init__(self, folder: Path, settings: dict[str, str], server: str = "service.cli.main") -> None:
        self.folder = folder
        self.server = server
        """The program that understands `server`."""
        self.home = folder / "home"
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.settings = {**SETTINGS, **settings}
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.agent_token = ""
        self.ports: dict[str, int] = {}
        """First rendezvous port of each node; another world, at the same time, has others."""

    def start_server(self) -> None:
        """Start it (again) on the same data; returns when it answers."""
        environment = {
            "BACE_HOME": str(self.home),
            "BACE_PORT": str(self.port),
            "PYTHONPATH": str(ROOT),
            **self.settings,
        }
        self._start("server", [self.server, "server"], environment)
        self.until("the server is ready", lambda: self._get_status("/readyz") == 200, 60)

    def start_agent(self, node: str, region: str, slots: int, address: str = "127.0.0.1") -> None:
        """Start the agent of a node (again), with what its work folder remembers."""
        if not self.agent_token:
            self.agent_token = self.post("/v1/tokens", {"name": "agents", "role": "agent"})["token"]
        first = self.ports.setdefault(node, 20000 + self.port % 100 * 100 + 30 * len(self.ports))
        arguments = [
            *("agents", "--url", self.url, "--node", node, "--region", region, "--cpu-slots", str(slots)),
            *("--address", address, "--ports", f"{first}-{first + 29}", "--sustained-flops", "2e10"),
            *("--work-dir", str(self.folder / node)),
        ]
        self._start(node, arguments, {"BACE_TOKEN": self.agent_token})
        self.until(f"{node} is ready", lambda: self.node_state(node) == "ready", 90)

    def kill(self, name: str, *, with_workers: bool = False) -> None:
        """SIGKILL, as a power cut would; with its supervisors and workers if asked."""
        process = self.processes.pop(name)
        victims = []
        if with_workers:
            marker = str(self.folder / name)
            victims = [each for each in psutil.process_iter() if _belongs_to(each, marker)]
        process.kill()
        for victim in victims:
            with contextlib.suppress(psutil.NoSuchProcess):
                victim.kill()
        process.wait(10)

    def workers(self, name: str) -> set[int]:
        """Process ids of the stage workers (not the supervisors) of a node."""
        marker = str(self.folder / name)
        found = set()
        for each in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if "agents.worker" in each.cmdline() and _belongs_to(each, marker):
                    found.add(each.pid)
        return found

    def get(self, path: str, **params: Any) -> Any:
        return self._call("GET", path, params=params).json()

    def post(self, path: str, document: Document) -> Any:
        return self._call("POST", path, json=document).json()

    def put(self, path: str, document: Document) -> Any:
        return self._call("PUT", path, json=document).json()

    def job(self, job_id: str) -> Document:
        return dict(self.get(f"/v1/jobs/{job_id}"))

    def steps(self, job_id: str) -> list[Document]:
        """The whole reported series, page by page."""
        rows: list[Document] = []
        cursor = None
        while True:
            page = self.get(f"/v1/jobs/{job_id}/steps", **({"cursor": cursor} if cursor else {}))
            rows += page["items"]
            cursor = page.get("next")
            if not cursor:
                return rows

    def node_state(self, node: str) -> str | None:
        return next(
            (each["state"] for each in self.get("/v1/nodes")["items"] if each["node_id"] == node), None
        )

    def until(self, what: str, question: Callable[[], T], timeout_s: float) -> T:
        """Ask until the answer is true; fails with the logs' ends when the time is over."""
        deadline = time.monotonic() + timeout_s
        while True:
            answer = question()
            if answer:
                return answer
            if time.monotonic() > deadline:
                pytest.fail(f"not within {timeout_s} s: {what}\n{self._log_ends()}")
            time.sleep(0.1)

    def end(self) -> None:
        """Take down everything that this world has started."""
        for process in self.processes.values():
            process.kill()
        marker = str(self.folder)
        for each in list(psutil.process_iter()):
            if each.pid != os.getpid() and _belongs_to(each, marker):
                with contextlib.suppress(psutil.Error):
                    each.send_signal(signal.SIGKILL)
        for process in self.processes.values():
            process.wait(10)

    def _start(self, name: str, arguments: list[str], environment: dict[str, str]) -> None:
        with (self.folder / f"{name}.log").open("ab") as sink:
            self.processes[name] = subprocess.Popen(
                [sys.executable, "-m", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                env={**os.environ, "BACE_WORLD": str(self.folder / name), **environment},
                start_new_session=True,
            )

    def _call(self, method: str, path: str, **rest: Any) -> httpx.Response:
        token = (self.home / "admin-token").read_text().strip()
        with httpx.Client(base_url=self.url, trust_env=False, timeout=30) as client:
            answer = client.request(method, path, headers={"Authorization": f"Bearer {token}"}, **rest)
        assert answer.status_code < 400, answer.text
        return answer

    def _get_status(self, path: str) -> int:
        try:
            return httpx.get(f"{self.url}{path}", trust_env=False, timeout=2).status_code
        except httpx.TransportError:
            return 0

    def _log_ends(self) -> str:
        ends = [
            f"--- {log.name}\n{log.read_text(errors='replace')[-3000:]}"
            for log in sorted(self.folder.glob("*.log"))
        ]
        return "\n".join(ends)


def _belongs_to(process: psutil.Process, marker: str) -> bool:
    """Whether a process names the folder in its command line or works in it."""
    try:
        folder = process.cwd()
        return (
            folder == marker
            or folder.startswith(marker + "/")
            or any(part == marker or part.startswith(marker + "/") for part in process.cmdline())
        )
    except psutil.Error:
        return False


def small_job(name: str, **changes: Any) -> Document:
    """A job of three stages that trains for some seconds on any machine."""
    return {
        "name": name,
        "model": {
            "layers": 3,
            "hidden": 64,
            "heads": 2,
            "kv_heads": 2,
            "head_dim": 32,
            "ffn": 128,
            "gated_mlp": True,
            "vocab": 256,
            "seq_len": 64,
        },
        "training": {"steps": 150, "micro_batch": 2, "micro_batches": 4, "dtype": "fp32", "schedule": "1f1b"},
        "parallelism": {"stages": 3},
        "checkpoint": {"every_steps": 10},
        "stop": {"signal": "TERM", "grace": "5s"},
        "run": {"builtin": "gpt", "learning_rate": 0.001, "seed": 1},
        **changes,
    }
