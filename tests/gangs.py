"""Gangs of real stage workers: processes of their own, over gloo, on free ports."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest

from agents.protocol import WorkerModel, WorkerPlan
from agents.worker.checkpoint.folder import CheckpointFolder
from agents.worker.checkpoint.local_store import LocalStore

PROMPT_S = 120.0
"""Bound of every wait: generous, as the cores may be shared; what is awaited takes a second or so."""
TINY = WorkerModel(layers=4, hidden=32, heads=4, kv_heads=2, head_dim=8, ffn=48, vocab=256, seq_len=16)


class Zygote:
    """The process that forks workers."""

    def __init__(self) -> None:
        script = Path(__file__).with_name("zygote.py")
        env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parents[1])}
        self._process = subprocess.Popen(
            [sys.executable, str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env
        )
        assert self._answer() == "up"

    def ask(self, **request: object) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())

    def close(self) -> None:
        self._process.communicate(timeout=PROMPT_S)


def until(condition: Callable[[], bool], what: str, within_s: float = PROMPT_S) -> None:
    deadline_s = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > deadline_s:
            pytest.fail(f"waited {within_s:g} s for {what}")
        time.sleep(0.01)


@dataclass
class Worker:
    """One started process."""

    zygote: Zygote
    pid: int
    report: Path
    log: Path
    ended: int | None = field(default=None)

    def reports(self, kind: str) -> list[dict[str, Any]]:
        if not self.report.exists():
            return []
        lines = [json.loads(line) for line in self.report.read_text().splitlines()]
        return [line for line in lines if line["kind"] == kind]

    @property
    def losses(self) -> dict[int, float]:
        return {line["step"]: line["loss"] for line in self.reports("step")}

    @property
    def end(self) -> dict[str, Any]:
        return self.reports("end")[-1]

    def poll(self) -> int | None:
        if self.ended is None:
            self.ended = self.zygote.ask(poll=self.pid)
        return self.ended

    def exit_code(self) -> int:
        """Its exit code, once it has ended; negative when a signal ended it."""
        until(lambda: self.poll() is not None, f"the end of process {self.pid}: {self.log.read_text()}")
        assert self.ended is not None
        return self.ended

    def listens(self) -> bool:
        """Whether it waits for others at a port: rank 0 in the rendezvous."""
        return any(entry.status == "LISTEN" for entry in psutil.Process(self.pid).net_connections())

    def send(self, what: signal.Signals) -> None:
        if self.poll() is None:
            os.kill(self.pid, what)


@dataclass
class Gangs:
    """Starts gangs, and leaves nothing of them behind."""

    zygote: Zygote
    folder: Path
    started: list[Worker] = field(default_factory=list)

    def start(
        self,
        plan: WorkerPlan | None,
        stages: int,
        *,
        data: int = 1,
        ranks: list[int] | None = None,
        port: int | None = None,
        env: Mapping[str, str] | None = None,
        script: Path | None = None,
    ) -> list[Worker]:
        """The workers of a gang in rank order (or just `ranks` of it)."""
        port = port or free_port()
        workers = []
        for rank in range(stages * data) if ranks is None else ranks:
            stage, data_rank = divmod(rank, data)
            number = len(self.started)
            report, log = self.folder / f"report-{number}.jsonl", self.folder / f"log-{number}.txt"
            place = {
                "RANK": rank, "WORLD_SIZE": stages * data, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port,
                "BACE_STAGE": stage, "BACE_STAGES": stages, "BACE_DATA_RANK": data_rank, "BACE_DATA_SIZE": data,
                "BACE_ALLOCATION_ID": f"alloc-{port}", "BACE_REPORT": report, "OMP_NUM_THREADS": 1,
                "GLOO_SOCKET_IFNAME": "lo", "PATH": os.environ["PATH"],
            }  # fmt: skip
            environment = {name: str(value) for name, value in place.items()} | dict(env or {})
            if plan is not None:
                environment["BACE_PLAN"] = plan.model_dump_json()
            log.touch()
            pid = self.zygote.ask(env=environment, log=str(log), script=str(script) if script else None)
            workers.append(Worker(self.zygote, pid, report, log))
            self.started.append(workers[-1])
        return workers

    def plan(self, stages: int, **changes: Any) -> WorkerPlan:
        """A tiny plan of strict 1F1B for `stages` stages, with its checkpoints in this test's folder."""
        layers = TINY.layers
        return WorkerPlan(
            **{
                "model": TINY,
                "steps": 20,
                "micro_batch": 2,
                "micro_batches": 4,
                "dtype": "fp32",
                "recompute": "none",
                "layers_per_stage": [layers // stages + (s < layers % stages) for s in range(stages)],
                "window": [stages - s for s in range(stages)],
                "learning_rate": 0.003,
                "seed": 5,
                "checkpoint_uri": (self.folder / "checkpoints").as_uri(),
                "checkpoint_every": 5,
                **changes,
            }
        )

    @property
    def checkpoints(self) -> CheckpointFolder:
        return CheckpointFolder(LocalStore(self.checkpoint_root), "reader")

    @property
    def checkpoint_root(self) -> Path:
        return self.folder / "checkpoints"

    def free_port(self) -> int:
        return free_port()

    def until(self, condition: Callable[[], bool], what: str) -> None:
        until(condition, what)

    def close(self) -> None:
        for worker in self.started:
            worker.send(signal.SIGKILL)
        for worker in self.started:
            worker.exit_code()


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
    return port
