"""The way of an agent to the servers: a relay that can swallow either direction and, as root, a network of its own.

What the relay swallows is not lost but late, as on a real network that heals: it arrives when the way is open again.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import threading
from collections.abc import Coroutine, Sequence
from typing import Any

from service.cli.testbed.namespaces import ip

CONNECT_TIMEOUT_S = 2.0


class Namespace:
    """A network namespace that one pair of interfaces joins to this one. SubprocessError where it cannot be had."""

    def __init__(self, number: int) -> None:
        self.name = f"chaos{os.getpid()}n{number}"
        self._outside = f"cv{os.getpid() % 10**6}n{number}"
        network = f"198.18.{os.getpid() % 256}"  # of the range for tests of networks (RFC 2544)
        self.outside_address = f"{network}.{4 * number + 1}"
        inside_address = f"{network}.{4 * number + 2}"
        inside = "inside"
        try:
            ip("netns", "add", self.name)
            ip("link", "add", self._outside, "type", "veth", "peer", "name", inside, "netns", self.name)
            ip("address", "add", f"{self.outside_address}/30", "dev", self._outside)
            ip("link", "set", self._outside, "up")
            ip("-n", self.name, "address", "add", f"{inside_address}/30", "dev", inside)
            ip("-n", self.name, "link", "set", inside, "up")
            ip("-n", self.name, "link", "set", "lo", "up")
        except (OSError, subprocess.SubprocessError):
            self.close()
            raise

    @property
    def prefix(self) -> tuple[str, ...]:
        """Before the arguments of a program that is to run in it."""
        return ("ip", "netns", "exec", self.name)

    def cut(self) -> None:
        """Nothing passes."""
        ip("link", "set", self._outside, "down")

    def mend(self) -> None:
        """All passes."""
        ip("link", "set", self._outside, "up")

    def close(self) -> None:
        """Take both away."""
        with contextlib.suppress(OSError):
            for arguments in (("link", "del", self._outside), ("netns", "del", self.name)):
                subprocess.run(["ip", *arguments], check=False, capture_output=True, timeout=10)


def may_make_namespaces() -> bool:
    """Whether this user may."""
    if os.geteuid() != 0:
        return False
    try:
        Namespace(62).close()
    except (OSError, subprocess.SubprocessError):
        return False
    return True


class Relay:
    """One listening address in front of all servers. A connection goes to the next server that takes it."""

    def __init__(self, loop: Loop, address: str, backends: Sequence[int]) -> None:
        self._loop = loop
        self._backends = list(backends)
        self._turn = 0
        self._to_server = asyncio.Event()
        self._to_agent = asyncio.Event()
        self.port = int(loop.call(self._listen(address)))

    def cut(self, *, to_server: bool, to_agent: bool) -> None:
        """Swallow what goes in these directions."""
        self._loop.call(self._set(to_server=not to_server, to_agent=not to_agent))

    def mend(self) -> None:
        """Let all pass, what was held back first."""
        self._loop.call(self._set(to_server=True, to_agent=True))

    async def _set(self, *, to_server: bool, to_agent: bool) -> None:
        for gate, is_open in ((self._to_server, to_server), (self._to_agent, to_agent)):
            if is_open:
                gate.set()
            else:
                gate.clear()

    async def _listen(self, address: str) -> int:
        await self._set(to_server=True, to_agent=True)
        self._server = await asyncio.start_server(self._serve, address, 0)
        return int(self._server.sockets[0].getsockname()[1])

    def close(self) -> None:
        """Listen no more."""
        self._loop.call(self._stop_listening())

    async def _stop_listening(self) -> None:
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        backend = await self._connect()
        if backend is not None:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.gather(
                    _pump(reader, backend[1], self._to_server), _pump(backend[0], writer, self._to_agent)
                )
            backend[1].close()
        writer.close()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        for _ in self._backends:
            self._turn += 1
            port = self._backends[self._turn % len(self._backends)]
            with contextlib.suppress(OSError, asyncio.TimeoutError):
                return await asyncio.wait_for(asyncio.open_connection("127.0.0.1", port), CONNECT_TIMEOUT_S)
        return None


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, gate: asyncio.Event) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65536):
            await gate.wait()
            writer.write(data)
            await writer.drain()
    writer.close()


class Loop:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def call(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run it there, and wait for its result."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    def close(self) -> None:
        """End it with all that it carries."""
        self.call(self._cancel_all())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _cancel_all(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.wait_for(asyncio.gather(*others, return_exceptions=True), 5)
