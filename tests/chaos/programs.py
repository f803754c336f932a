"""Programs that run, die, sleep, and are started again as an init system would: servers, Redis and agents."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import psutil

ROOT = Path(__file__).parents[2]
RESTART_AFTER_S = 1.0
"""A program that has ended by itself is started again after so long."""


def free_port() -> int:
    """A port of loopback that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Program:
    """One program, in one process at a time. `ended_by_itself`: exit codes of the ends that nobody has asked for."""

    def __init__(
        self, name: str, arguments: Sequence[str], environment: Mapping[str, str], log: Path
    ) -> None:
        self.name = name
        self._arguments = list(arguments)
        self._environment = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None
        self._ended_at_s: float | None = None
        self.held_down = True
        """Not to be started by `look`: not started yet, or killed for now."""
        self.ended_by_itself: list[int] = []

    def start(self) -> None:
        """Start it, unless it runs."""
        self.held_down = False
        if self.runs:
            return
        self._ended_at_s = None
        with self._log.open("ab") as sink:
            self._process = subprocess.Popen(
                self._arguments,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                env=self._environment,
                start_new_session=True,
            )

    @property
    def runs(self) -> bool:
        """Whether its process has not ended (it may sleep)."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int | None:
        """Of the process, while it runs."""
        return self._process.pid if self.runs and self._process is not None else None

    def kill(self) -> None:
        """SIGKILL; it stays down until `start`."""
        self.held_down = True
        if self._process is not None:
            self._process.kill()
            self._process.wait(10)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to its process, if there is one."""
        if self.runs and self._process is not None:
            self._process.send_signal(number)

    def look(self) -> None:
        """Start again what has ended by itself, after a pause."""
        if self.runs or self.held_down:
            return
        now_s = time.monotonic()
        if self._ended_at_s is None:
            self._ended_at_s = now_s
            if self._process is not None:
                self.ended_by_itself.append(self._process.returncode)
        elif now_s - self._ended_at_s > RESTART_AFTER_S:
            self.start()


def python(module: str, *arguments: str) -> tuple[str, ...]:
    """The arguments that run a module with this interpreter."""
    return (sys.executable, "-m", module, *arguments)


def worker_processes(folder: Path) -> tuple[list[psutil.Process], list[psutil.Process]]:
    """Supervisors and workers whose agent keeps its things below `folder`.

    A supervisor names its process's folder in its command line; a worker works in it.
    """
    supervisors, workers = [], []
    marker = f"{folder}/"
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            command = process.cmdline()
            if "agents.supervisor" in command and command[-1].startswith(marker):
                supervisors.append(process)
            elif any(part.endswith("chaos/stage.py") for part in command) and process.cwd().startswith(
                marker
            ):
                workers.append(process)
    return supervisors, workers


def send(processes: Sequence[psutil.Process], number: signal.Signals) -> None:
    """The signal to each that is still there."""
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.send_signal(number)


def kill_below(folder: Path) -> None:
    """Everything that works in the folder or names it in its command line, but for this process."""
    for process in _below(str(folder)):
        with contextlib.suppress(psutil.Error):
            process.kill()


def _below(marker: str) -> Iterator[psutil.Process]:
    own = {os.getpid(), *(parent.pid for parent in psutil.Process().parents())}
    for process in psutil.process_iter():
        if process.pid in own:
            continue
        with contextlib.suppress(psutil.Error):
            if process.cwd().startswith(marker) or any(part.startswith(marker) for part in process.cmdline()):
                yield process
