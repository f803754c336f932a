"""What a supervisor that was killed has left running: its worker dies with it, but not what the worker has started.

A supervisor sweeps by itself what its worker leaves; nobody is the parent of the rest. It is known by its
environment: every process of a worker has begun with the work folder in it, and a job cannot set that variable.
"""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

WORK_FOLDER = "BACE_WORK_DIR"


def kill_remains(work: Path) -> bool:
    """SIGKILL to every process that was started with that work folder. False if there was none."""
    mark = b"\0%s=%s\0" % (WORK_FOLDER.encode(), os.fsencode(work))
    found = False
    for pid in _processes():
        if mark in b"\0%s\0" % _environment(pid):
            found = True
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    return found


def _processes() -> list[int]:
    """All of this machine; none where there is no /proc."""
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except FileNotFoundError:
        return []


def _environment(pid: int) -> bytes:
    """What the process began with; empty where it has ended, or is somebody else's."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return file.read()
    except OSError:
        return b""
