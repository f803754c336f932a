"""A small real server for agents, and agents as real processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import psutil
import pytest

from agents.protocol import (
    PROTOCOL_HEADER,
    PROTOCOL_VERSION,
    Heartbeat,
    HeartbeatReply,
    JoinReply,
    JoinRequest,
    ProcessReport,
    ProcessState,
    Report,
    StageProcess,
    StepReport,
    StopProtocol,
)
from agents.settings import AgentSettings, NodeOptions, complete_nodes
from agents.start import run_agent

TOKEN = "bace_test-token"
PATIENCE_S = 15.0


def wait_until(condition: Callable[[], Any], what: str, patience_s: float = PATIENCE_S) -> Any:
    """What the condition gives once it is true; fails when the patience is over."""
    deadline = time.monotonic() + patience_s
    while not (result := condition()):
        if time.monotonic() > deadline:
            pytest.fail(f"not within {patience_s} s: {what}")
        time.sleep(0.02)
    return result


class FakeServer:
    """The server's side of /agent/v1, in memory: says what should run, keeps every report once."""

    def __init__(self) -> None:
        self.desired: dict[str, StageProcess] = {}
        self.reports: dict[int, Report] = {}
        self.repeated: list[int] = []
        self.processes: dict[str, ProcessReport] = {}
        self.joins: list[JoinRequest] = []
        self.beats: list[Heartbeat] = []
        self.lease_s = 30.0
        self.interval_s = 0.1
        self.answering = True
        self.lose_replies = False
        self.forgetting = False
        self.stored = 0
        self._lock = threading.Lock()
        self._http: ThreadingHTTPServer | None = None

    @property
    def url(self) -> str:
        assert self._http is not None
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    def answer(self, path: str, body: bytes) -> tuple[int, bytes]:
        with self._lock:
            if path == "/agent/v1/join":
                self.joins.append(JoinRequest.model_validate_json(body))
                reply = JoinReply(
                    heartbeat_interval_s=self.interval_s, lease_s=self.lease_s, server_time_s=time.time()
                )
                return 200, reply.model_dump_json().encode()
            beat = Heartbeat.model_validate_json(body)
            self.beats.append(beat)
            self.processes |= {process.key: process for process in beat.processes}
            for report in beat.reports:
                if report.seq in self.reports:
                    assert self.reports[report.seq] == report, "a number was used twice"
                    self.repeated.append(report.seq)
                self.reports[report.seq] = report
                self.stored = max(self.stored, report.seq)
            return 200, self._reply(beat).model_dump_json().encode()

    def _reply(self, beat: Heartbeat) -> HeartbeatReply:
        ended = {ProcessState.EXITED, ProcessState.STOPPED, ProcessState.FAILED_TO_START}
        return HeartbeatReply(
            desired=list(self.desired.values()),
            forget=[p.key for p in beat.processes if p.state in ended] if self.forgetting else [],
            reports_stored=self.stored,
            heartbeat_interval_s=self.interval_s,
            lease_s=self.lease_s,
            server_time_s=time.time(),
        )

    def want(self, *processes: StageProcess) -> None:
        self.desired |= {process.key: process for process in processes}

    def state(self, key: str) -> str | None:
        process = self.processes.get(key)
        return None if process is None else process.state.value

    def steps(self, key: str) -> list[int]:
        """In the order of their numbers."""
        mine = [self.reports[seq] for seq in sorted(self.reports) if self.reports[seq].key == key]
        return [report.step for report in mine if isinstance(report, StepReport)]

    def lines(self, key: str) -> list[str]:
        mine = [report for report in self.reports.values() if report.key == key and report.kind == "log"]
        numbered = {r.first_line + n: line for r in mine for n, line in enumerate(r.lines)}
        return [numbered[number] for number in sorted(numbered)]

    def __enter__(self) -> FakeServer:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                assert self.headers[PROTOCOL_HEADER] == str(PROTOCOL_VERSION)
                if self.headers["Authorization"] != f"Bearer {TOKEN}":
                    self._send(401, json.dumps({"detail": "unknown token"}).encode())
                elif not outer.answering:
                    self._send(503, b"{}")
                else:
                    status, answer = outer.answer(self.path, body)
                    if outer.lose_replies:
                        self._send(502, b"{}")
                    else:
                        self._send(status, answer)

            def do_GET(self) -> None:
                self._send(200, b"{}")

            def _send(self, status: int, answer: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *arguments: object) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()
        return self

    def __exit__(self, *arguments: object) -> None:
        assert self._http is not None
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


class AgentProcess:
    """`python -m agents` as a process of its own, and everything that was started below it."""

    def __init__(self, work_dir: Path, url: str) -> None:
        self.work_dir = work_dir
        self.url = url
        self.log = work_dir.parent / f"{work_dir.name}.log"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *options: str, env: dict[str, str] | None = None) -> None:
        command = [
            *(sys.executable, "-m", "agents", "--url", self.url, "--region", "eu-test", "--node", "node-a"),
            *("--cpu-slots", "4", "--memory", "1GB", "--sustained-flops", "1e9"),
            *("--work-dir", str(self.work_dir), *options),
        ]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "BACE_TOKEN": TOKEN, **(env or {})},
            )

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def signal(self, number: int) -> int:
        """Sends it, and waits for the agent's end."""
        assert self._process is not None
        self._process.send_signal(number)
        return self._process.wait(timeout=PATIENCE_S)

    def running(self) -> list[dict[str, Any]]:
        """What the supervisors say that they run."""
        return running_in(self.work_dir)

    def clean_up(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()


class ThreadAgent:
    """The same agent in a thread of the test: quick to start, for what needs no process of its own."""

    def __init__(self, work_dir: Path, url: str) -> None:
        self.work_dir = work_dir
        self.url = url
        self.log = RecordingLog()
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None

    def start(
        self,
        stop_workers_on_exit: bool = False,
        secrets_dir: Path | None = None,
        worker_env: tuple[str, ...] = (),
    ) -> None:
        node = NodeOptions(name="node-a", region="eu-test", cpu_slots=4, memory="1GB", sustained_flops=1e9)
        settings = AgentSettings(
            url=self.url,
            token=TOKEN,
            work_dir=self.work_dir,
            secrets_dir=secrets_dir or self.work_dir / "secrets",
            nodes=complete_nodes(NodeOptions(), [node]),
            probe_seconds=1.0,
            stop_workers_on_exit=stop_workers_on_exit,
            worker_env=worker_env,
        )
        self._ending = threading.Event()
        self._thread = threading.Thread(target=run_agent, args=(settings, (), self.log, self._ending))
        self._thread.start()

    def stop(self) -> None:
        """As SIGTERM does; returns when it has ended."""
        self._ending.set()
        if self._thread is not None:
            self._thread.join(timeout=PATIENCE_S)
            assert not self._thread.is_alive()

    def running(self) -> list[dict[str, Any]]:
        """The running files of all processes in the work folder."""
        return running_in(self.work_dir)


class RecordingLog:
    """What the agent says, kept."""

    def __init__(self) -> None:
        self.entries: list[dict[str, object]] = []

    def info(self, event: str, **fields: object) -> None:
        self.entries.append({"event": event, **fields})

    warning = error = info


def running_in(work_dir: Path) -> list[dict[str, Any]]:
    """What the supervisors of a work folder say that they run."""
    return [json.loads(file.read_text()) for file in sorted(work_dir.glob("run/*/running.json"))]


def kill_all_in(work_dir: Path) -> None:
    """Whatever a test has left behind in its own folder."""
    for document in running_in(work_dir):
        for who in ("supervisor", "worker"):
            if _is_ours(document[f"{who}_pid"], work_dir):
                os.kill(document[f"{who}_pid"], signal.SIGKILL)


def _is_ours(pid: int, work_dir: Path) -> bool:
    try:
        process = psutil.Process(pid)
        return str(work_dir) in " ".join([*process.cmdline(), process.cwd()])
    except psutil.Error:
        return False


def alive(pid: int) -> bool:
    """Whether a process runs (and is not only waiting to be buried)."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


# A worker's way to tell: what stands at the head of the scripts here.
TELLING = """
import json, os, signal, sys, time
def tell(**line):
    with open(os.environ["BACE_REPORT"], "a") as report:
        report.write(json.dumps(line) + "\\n")
"""

# Steps until it is told to stop, then says a checkpoint and ends.
STEPPING = (
    TELLING
    + """
tell(kind="ready")
step = 0
stopping = []
signal.signal(signal.SIGTERM, lambda *_: stopping.append(1))
while not stopping:
    step += 1
    tell(kind="step", step=step, loss=1.0 / step, step_time_s=0.02, tokens=10)
    print("step", step)
    time.sleep(0.02)
tell(kind="checkpoint", step=step, uri="file:///ckpt")
tell(kind="end", cause="stopped")
print("bye")
"""
)


def stage(script: str, key: str = "alloc-1/0", **changes: Any) -> StageProcess:
    """A process that runs a Python script."""
    values: dict[str, Any] = {
        "key": key,
        "job_id": "job-1",
        "allocation_id": key.split("/")[0],
        "generation": 1,
        "node_id": "node-a",
        "gpu_indices": [0],
        "rank": 0,
        "stage": 0,
        "argv": ["{python}", "-u", "-c", script],
        "env": {"RANK": "0"},
        "stop": StopProtocol(signal="TERM", grace_s=2.0),
    }
    return StageProcess.model_validate({**values, **changes})
