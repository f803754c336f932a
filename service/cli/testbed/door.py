"""`python -m service.cli.testbed.door PORT NAMESPACE…`: a server on this machine's loopback, on that of each namespace.

So agents in a bed reach the server as those beside it do, at http://127.0.0.1:PORT, without a delay.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
from functools import partial

from service.cli.testbed.namespaces import existing

CHUNK_BYTES = 65536


async def serve(port: int, names: set[str]) -> None:
    """Relay connections until the process ends."""
    servers = []
    for space in existing():
        if space.name in names:
            with space.inside():
                listener = socket.create_server(("127.0.0.1", port))
            servers.append(await asyncio.start_server(partial(_relay, port), sock=listener))
    await asyncio.gather(*(server.serve_forever() for server in servers))


async def _relay(port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        there = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(_pump(reader, there[1]), _pump(there[0], writer))
    writer.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(CHUNK_BYTES):
            writer.write(data)
            await writer.drain()
    writer.close()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), set(sys.argv[2:])))
