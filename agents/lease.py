"""The agent's right to keep workers running, and how it reaches the supervisors.

A heartbeat that was answered gives `lease_s` from the moment it was *sent*: the server counts from when it
received it, which is not earlier. Time is that of the machine since boot, suspension included, so that neither
a changed wall clock nor a machine that slept can lengthen a lease. The deadline stands in a file that every
supervisor reads by itself; workers stop in time also when the agent is dead.

Only the standard library: supervisors import this and must start quickly.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from typing import Protocol

BOOT_ID_FILE = "/proc/sys/kernel/random/boot_id"


def boot_clock_s() -> float:
    """Seconds since the machine started, the same in all of its processes. Never steps back."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime(clock)


def boot_id() -> str:
    """Which start of the machine this is; empty where the system does not tell."""
    try:
        with open(BOOT_ID_FILE, encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


def write_deadline(path: str, deadline_s: float) -> None:
    """Replaces the lease file whole, so that no reader sees half of it."""
    draft = f"{path}.new"
    with open(draft, "w", encoding="ascii") as file:
        json.dump({"boot_id": boot_id(), "deadline_s": deadline_s}, file)
    os.replace(draft, path)


def read_deadline(path: str) -> float | None:
    """The deadline on `boot_clock_s`; None where the file is not there, not whole, or of another boot."""
    try:
        with open(path, encoding="ascii") as file:
            content = json.load(file)
    except (OSError, ValueError):
        return None
    if not isinstance(content, dict) or content.get("boot_id") != boot_id():
        return None
    deadline_s = content.get("deadline_s")
    return float(deadline_s) if isinstance(deadline_s, int | float) else None


class Deadline(Protocol):
    """Where the deadline is kept, for the agent that comes next and for every supervisor."""

    def read(self) -> float | None:
        """On `boot_clock_s`; None where there is none of this boot."""
        ...

    def write(self, deadline_s: float) -> None:
        """Whole or not at all; OSError."""
        ...


class DeadlineFile:
    """`Deadline` in a file."""

    def __init__(self, path: str) -> None:
        self._path = path

    def read(self) -> float | None:
        return read_deadline(self._path)

    def write(self, deadline_s: float) -> None:
        write_deadline(self._path, deadline_s)


class Lease:
    """The lease as the agent holds it. Survives a restart of the agent by its file."""

    def __init__(self, path: str, open_deadline: Callable[[str], Deadline] = DeadlineFile) -> None:
        self._deadline = open_deadline(path)
        self._deadline_s = self._deadline.read()

    def renew(self, sent_at_s: float, lease_s: float) -> None:
        """After an answered heartbeat that was sent at `sent_at_s` (`boot_clock_s`)."""
        self._deadline_s = sent_at_s + lease_s
        self._deadline.write(self._deadline_s)

    def valid(self, now_s: float) -> bool:
        """Whether workers may run at `now_s`. False before the first answered heartbeat."""
        return self._deadline_s is not None and now_s < self._deadline_s

    def remaining_s(self, now_s: float) -> float:
        """Seconds left; 0 where it has run out or was never given."""
        return 0.0 if self._deadline_s is None else max(0.0, self._deadline_s - now_s)
