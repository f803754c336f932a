"""Network namespaces of a bed: made, entered, and removed with whatever still runs in them.

A name tells the process that keeps the bed, so that what a killed one has left is known as stale.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

MODULE = "service.cli.testbed"
"""What a keeper's command line names."""
PREFIX = "bacebed"
FOLDER = Path("/run/netns")
CLONE_NEWNET = 0x40000000
END_PATIENCE_S = 3.0


@dataclass(frozen=True, slots=True)
class Namespace:
    """The network of one region: `bacebed-KEEPER-REGION`, KEEPER being the process that keeps the bed."""

    keeper: int
    region: str

    @property
    def name(self) -> str:
        """As `ip netns` knows it."""
        return f"{PREFIX}-{self.keeper}-{self.region}"

    @property
    def prefix(self) -> tuple[str, ...]:
        """Before the arguments of a program that is to run in it."""
        return ("ip", "netns", "exec", self.name)

    @property
    def keeper_words(self) -> Sequence[str]:
        """The command line of its keeper; empty where that does not live any more."""
        try:
            words = psutil.Process(self.keeper).cmdline()
        except psutil.Error:
            return ()
        return words if MODULE in words else ()

    def create(self) -> None:
        """Make it, with nothing but loopback. Raises subprocess.CalledProcessError."""
        ip("netns", "add", self.name)
        ip("-n", self.name, "link", "set", "lo", "up")

    def enter(self) -> None:
        """Let the calling thread, and what it starts, use this network from now on. Raises OSError."""
        there = os.open(FOLDER / self.name, os.O_RDONLY | os.O_CLOEXEC)
        try:
            _set_namespace(there)
        finally:
            os.close(there)

    @contextlib.contextmanager
    def inside(self) -> Iterator[None]:
        """Sockets and devices that the calling thread makes in the block belong to this network."""
        here = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        try:
            self.enter()
            try:
                yield
            finally:
                _set_namespace(here)
        finally:
            os.close(here)

    def remove(self) -> None:
        """End what runs in it, and take it away. It may be half made, or gone."""
        listed = subprocess.run(
            ["ip", "netns", "pids", self.name],  # noqa: S607 - wherever the system has it
            check=False,
            capture_output=True,
            text=True,
            timeout=10,
        )
        running = []
        for pid in map(int, listed.stdout.split()):
            with contextlib.suppress(psutil.NoSuchProcess):
                running.append(psutil.Process(pid))
        for process in running:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.terminate()
        _, left = psutil.wait_procs(running, timeout=END_PATIENCE_S)
        for process in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        with contextlib.suppress(subprocess.CalledProcessError):
            ip("netns", "del", self.name)


def existing() -> list[Namespace]:
    """Those of every bed on this machine, stale ones among them."""
    if not FOLDER.is_dir():
        return []
    found = []
    for path in sorted(FOLDER.iterdir()):
        prefix, _, rest = path.name.partition("-")
        keeper, _, region = rest.partition("-")
        if prefix == PREFIX and keeper.isdigit() and region:
            found.append(Namespace(int(keeper), region))
    return found


def remove_stale() -> list[Namespace]:
    """Remove those whose keeper was killed; what was removed."""
    stale = [namespace for namespace in existing() if not namespace.keeper_words]
    for namespace in stale:
        namespace.remove()
    return stale


def ip(*arguments: str) -> None:
    """Run `ip`. Raises subprocess.CalledProcessError with what it said."""
    subprocess.run(
        ["ip", *arguments],  # noqa: S607 - wherever the system has it
        check=True,
        capture_output=True,
        text=True,
        timeout=10,
    )


def _set_namespace(descriptor: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(descriptor, CLONE_NEWNET):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
