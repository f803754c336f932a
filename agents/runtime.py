"""How workers are started: the `Launcher` port, and local processes behind it.

A launcher starts a key at most once, tells what became of it, and asks it to stop. It needs no memory of its
own: a restarted agent asks a new launcher about the same keys, and that is adoption.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from typing import Any, Protocol

from agents.causes import (
    NEVER_STARTED,
    NOT_EXECUTABLE,
    START_FAILED,
    SUPERVISOR_LOST,
)
from agents.environment import Execution
from agents.errors import RefusedError
from agents.lease import boot_id
from agents.protocol import ProcessState, StopProtocol
from agents.remains import kill_remains
from agents.supervisor import process_start
from agents.workdir import ProcessFolder, WorkDir

START_TIMEOUT_S = 20.0


@dataclass(frozen=True, slots=True)
class Launch:
    """What a launcher needs to start one process. `memory_bytes`: the most data it may hold; None: no limit."""

    key: str
    execution: Execution
    stop: StopProtocol
    memory_bytes: int | None


@dataclass(frozen=True, slots=True)
class Ended:
    """How a process ended."""

    state: ProcessState
    exit_code: int | None = None
    cause: str | None = None
    detail: str | None = None


class Launcher(Protocol):
    """Starts processes and tells of them. Every method may be called again without harm."""

    def start(self, launch: Launch) -> None:
        """Starts the key, unless it was started before; RefusedError where it cannot be.

        Returns when the process runs, or has failed in a way that `ended` tells.
        """
        ...

    def ended(self, key: str) -> Ended | None:
        """How it ended; None while it runs. A key that was never started has ended."""
        ...

    def stop(self, key: str, cause: str) -> None:
        """Asks it to stop by its stop protocol. The first cause stands."""
        ...

    def remove(self, key: str) -> None:
        """Deletes what is left of an ended process."""
        ...


class LocalLauncher:
    """Processes of this machine, each under a supervisor (`agents.supervisor`)."""

    def __init__(self, work_dir: WorkDir) -> None:
        self._work_dir = work_dir

    def start(self, launch: Launch) -> None:
        folder = self._work_dir.process(launch.key)
        try:
            folder.make()
        except FileExistsError:
            return
        except OSError as error:
            raise RefusedError(START_FAILED, f"the work folder could not be made: {error}") from error
        document = {
            "argv": launch.execution.argv,
            "env": launch.execution.env,
            "mask": launch.execution.secrets,
            "stop_signal": launch.stop.signal,
            "grace_s": launch.stop.grace_s,
            "memory_bytes": launch.memory_bytes,
            "lease_file": self._work_dir.lease_file,
        }
        try:
            # -I: neither the environment nor the current folder has a say in what the supervisor is.
            subprocess.run(
                [sys.executable, "-I", "-m", "agents.supervisor", str(folder.path)],
                input=json.dumps(document).encode(),
                capture_output=True,
                timeout=START_TIMEOUT_S,
                check=True,
                cwd="/",
                env={"PATH": os.defpath},
                start_new_session=True,
            )
        except (OSError, subprocess.SubprocessError) as error:
            # Slow, or dead? Who has the claim decides: with it given up here, the supervisor cannot start any more.
            if folder.claim():
                raise RefusedError(START_FAILED, f"the supervisor could not be started: {error}") from error

    def ended(self, key: str) -> Ended | None:
        folder = self._work_dir.process(key)
        document = folder.read("exit.json")
        if document is None:
            if folder.supervised():
                return None
            document = folder.read("exit.json")  # it may have been written before the lock was let go
        if document is not None:
            return _ended(document)
        if folder.claim():
            return Ended(
                ProcessState.FAILED_TO_START, cause=NEVER_STARTED, detail="the agent ended before the start"
            )
        _kill_orphan(folder.read("running.json"))
        if kill_remains(folder.work):
            return None  # looked at again, until nothing of it is left
        return Ended(
            ProcessState.EXITED,
            cause=SUPERVISOR_LOST,
            detail="its supervisor was killed, or the machine restarted",
        )

    def stop(self, key: str, cause: str) -> None:
        folder = self._work_dir.process(key)
        with contextlib.suppress(OSError):
            folder.write_stop(cause)  # on a full disk the signal alone must do
        running = folder.read("running.json")
        if running is not None and folder.supervised() and _is_same(running, "supervisor"):
            os.kill(running["supervisor_pid"], signal.SIGTERM)

    def remove(self, key: str) -> None:
        folder: ProcessFolder = self._work_dir.process(key)
        folder.remove()


def _ended(document: dict[str, Any]) -> Ended:
    """An exit file as what is reported."""
    if document["failure"] is not None:
        return Ended(ProcessState.FAILED_TO_START, cause=NOT_EXECUTABLE, detail=document["failure"])
    if document["stop_cause"] is None:
        return Ended(ProcessState.EXITED, document["exit_code"])
    detail = "killed: it did not end within its grace" if document["killed"] else None
    return Ended(ProcessState.STOPPED, document["exit_code"], document["stop_cause"], detail)


def _is_same(running: dict[str, Any], who: str) -> bool:
    """Whether the pid still is that process: same boot, same start."""
    start = running[f"{who}_start"]
    return bool(
        start is not None
        and running["boot_id"] == boot_id()
        and process_start(running[f"{who}_pid"]) == start
    )


def _kill_orphan(running: dict[str, Any] | None) -> None:
    """A worker dies with its supervisor; should one have been spared, it dies now, with its group."""
    if running is not None and _is_same(running, "worker"):
        os.killpg(running["worker_pid"], signal.SIGKILL)
