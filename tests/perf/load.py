"""A server as a process on one core, and clients on the other that cost next to nothing themselves."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil

PATIENCE_S = 90.0
ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Figures:
    """Of calls that were all answered as they should be."""

    calls: int
    wall_s: float
    server_cpu_s: float
    latencies_s: Sequence[float]

    @property
    def per_s(self) -> float:
        return self.calls / self.wall_s

    @property
    def per_cpu_s(self) -> float:
        """Calls for each second of processor time that the server used: what a core of its own would give."""
        return self.calls / self.server_cpu_s

    def quantile_s(self, part: float) -> float:
        return sorted(self.latencies_s)[int(part * (len(self.latencies_s) - 1))]

    def __str__(self) -> str:
        return (
            f"{self.per_s:,.0f}/s ({self.per_cpu_s:,.0f} for each second of the server's processor), median "
            f"{1000 * self.quantile_s(0.5):.0f} ms, p99 {1000 * self.quantile_s(0.99):.0f} ms"
        )


class ServerProcess:
    """`python -m …` that listens on a port of its own; its first core is not the clients'."""

    def __init__(self, home: Path, arguments: Sequence[str], settings: dict[str, str]) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = int(free.getsockname()[1])
        self.url = f"http://127.0.0.1:{self.port}"
        environment = {**os.environ, "BACE_HOME": str(home), "BACE_PORT": str(self.port), **settings}
        self.log = home / "server.log"
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", *arguments],
                env={**environment, "PYTHONPATH": str(ROOT)},
                stdout=log,
                stderr=log,
                cwd=ROOT,
            )
        self.usage = psutil.Process(self.process.pid)
        cores = sorted(os.sched_getaffinity(0))
        self.usage.cpu_affinity(cores[:1])

    def cpu_s(self) -> float:
        times = self.usage.cpu_times()
        return float(times.user + times.system)

    def wait(self, path: str = "/readyz") -> float:
        """Seconds until it answers 200."""
        begin_s = time.monotonic()
        while time.monotonic() < begin_s + PATIENCE_S:
            with contextlib.suppress(httpx.HTTPError):
                if httpx.get(f"{self.url}{path}", timeout=2, trust_env=False).status_code == 200:
                    return time.monotonic() - begin_s
            assert self.process.poll() is None, self.log.read_text()[-3000:]
            time.sleep(0.05)
        raise AssertionError(self.log.read_text()[-3000:])

    def end(self) -> None:
        self.process.kill()
        self.process.wait(10)


@contextlib.contextmanager
def on_the_other_core() -> Iterator[None]:
    """This process leaves the server's core alone."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(cores)[1:] or cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


class Connection:
    """HTTP/1.1, one request after the other, no library in between."""

    def __init__(self, port: int, token: str) -> None:
        self._port = port
        self._token = token
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def call(self, method: str, path: str, body: bytes = b"", headers: str = "") -> tuple[int, bytes]:
        """Status and body of the answer."""
        if self._writer is None or self._reader is None:
            self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: bace\r\nAuthorization: Bearer {self._token}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n{headers}\r\n"
        )
        self._writer.write(head.encode() + body)
        answer = await self._reader.readuntil(b"\r\n\r\n")
        lines = answer.lower().split(b"\r\n")
        length = next(int(line[15:]) for line in lines if line.startswith(b"content-length:"))
        return int(answer[9:12]), await self._reader.readexactly(length)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


async def measure(
    server: ServerProcess,
    connections: Sequence[Connection],
    call: Callable[[Connection, int], Awaitable[int]],
    seconds: float,
    expected: int,
) -> Figures:
    """All connections side by side, each call numbered, for so long; every answer must be as expected."""
    latencies_s: list[float] = []
    number = 0
    cpu_s, begin_s = server.cpu_s(), time.perf_counter()

    async def client(connection: Connection) -> None:
        nonlocal number
        while time.perf_counter() < begin_s + seconds:
            number += 1
            asked_s = time.perf_counter()
            assert await call(connection, number) == expected
            latencies_s.append(time.perf_counter() - asked_s)

    try:
        await asyncio.gather(*(client(connection) for connection in connections))
    finally:
        for connection in connections:
            connection.close()
    wall_s = time.perf_counter() - begin_s
    return Figures(len(latencies_s), wall_s, server.cpu_s() - cpu_s, latencies_s)
