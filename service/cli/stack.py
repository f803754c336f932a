"""The processes of a bacepipe on one machine: a server and some agents, each with a log of its own.

They stand in sessions of their own, so that Ctrl-C reaches only us and we take them down in order. What the
agents have started is found through the process tree (on Linux we adopt orphans), so that nothing stays behind.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import httpx
import psutil

from service.cli.exits import CommandError, Exit

PR_SET_CHILD_SUBREAPER = 36
ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
POLL_S = 0.1
STOP_PATIENCE_S = 8.0
"""From the polite signal until SIGKILL."""
LAST_LINES = 15


@dataclass(frozen=True, slots=True)
class Member:
    """One process of the stack."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path


class Stack:
    """Starts members, watches that they live, and stops them with everything they started."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.members: list[Member] = []
        (folder / "logs").mkdir(parents=True, exist_ok=True)
        _adopt_orphans()

    def start(
        self,
        name: str,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        within: Sequence[str] = (),
    ) -> Member:
        """Start `python -m …arguments` with our environment and `environment` over it.

        `within`: words before the command, such as `ip netns exec NAME`; what they start takes their place.
        """
        log = self.folder / "logs" / f"{name}.log"
        with log.open("ab") as sink:
            process = subprocess.Popen(
                [*within, sys.executable, "-m", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                env={**os.environ, **environment},
                start_new_session=True,
            )
        member = Member(name, process, log)
        self.members.append(member)
        return member

    def check(self) -> None:
        """Raise CommandError if a member has ended, with the last lines that it wrote."""
        for member in self.members:
            code = member.process.poll()
            if code is not None:
                raise CommandError(
                    f"{member.name} has ended with exit code {code}. Its last lines:\n{_last_lines(member.log)}",
                    Exit.FAILED,
                    hint=f"The whole log: {member.log}",
                )

    def wait_for(self, url: str, timeout_s: float) -> None:
        """Until `url` answers 200; raises where a member ends before or the time is over."""
        deadline = time.monotonic() + timeout_s
        while True:
            self.check()
            with contextlib.suppress(httpx.TransportError):
                if httpx.get(url, timeout=2.0, trust_env=False).status_code == 200:
                    return
            if time.monotonic() > deadline:
                raise CommandError(f"{url} does not answer after {timeout_s:.0f} s.", Exit.UNREACHABLE)
            time.sleep(POLL_S)

    def stop(self) -> None:
        """Stop every member and whatever they have started; returns when none of it runs any more."""
        ours = {child.pid: child for child in _descendants()}
        for member in reversed(self.members):
            if member.process.poll() is None:
                member.process.terminate()
        deadline = time.monotonic() + STOP_PATIENCE_S
        while time.monotonic() < deadline and any(m.process.poll() is None for m in self.members):
            ours.update((child.pid, child) for child in _descendants())
            time.sleep(POLL_S)
        ours.update((child.pid, child) for child in _descendants())
        _end(list(ours.values()))
        for member in self.members:
            member.process.wait()


def free_port(preferred: int) -> int:
    """`preferred` if nothing listens there on loopback, else one that the system picks."""
    for port in (preferred, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise CommandError("No free port on 127.0.0.1.", Exit.FAILED)


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """SIGINT, SIGTERM and SIGHUP end the block by KeyboardInterrupt, hence with the clean-up.

    SIGINT too is set: a shell starts background commands with it ignored.
    """

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    with _handling(interrupt):
        yield


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """The same signals are ignored in the block: a clean-up is not cut short by impatience."""
    with _handling(signal.SIG_IGN):
        yield


@contextlib.contextmanager
def _handling(handler: Callable[[int, FrameType | None], None] | signal.Handlers) -> Iterator[None]:
    before = {number: signal.signal(number, handler) for number in ENDING_SIGNALS}
    try:
        yield
    finally:
        for number, former in before.items():
            signal.signal(number, former)


def _adopt_orphans() -> None:
    """Let the kernel hand us the children of our dead children (Linux), so that `stop` still finds them."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _descendants() -> list[psutil.Process]:
    return psutil.Process().children(recursive=True)


def _end(processes: list[psutil.Process]) -> None:
    for polite in (True, False):
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                if polite:
                    process.terminate()
                else:
                    process.kill()
        _, processes = psutil.wait_procs(processes, timeout=STOP_PATIENCE_S / 2)


def _last_lines(path: Path) -> str:
    with path.open(encoding="utf-8", errors="replace") as lines:
        return "".join(deque(lines, maxlen=LAST_LINES)).rstrip()
