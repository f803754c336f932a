"""A listener on a node's first port, so that the doctors of other nodes can see that they reach this one.

It says `bace-listen 1 <node>` to whoever connects and closes: a doctor then knows that it has reached the node
it meant, and not something else on that address.
"""

from __future__ import annotations

import contextlib
import socket
import socketserver
import threading
from collections.abc import Iterator, Sequence

from agents.settings import NodeSettings

GREETING = "bace-listen 1 "
CONNECT_TIMEOUT_S = 3.0


class _Greeter(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        server = self.server
        assert isinstance(server, _NodeListener)  # noqa: S101 - tells the type checker what socketserver cannot
        self.request.sendall(f"{GREETING}{server.node_id}\n".encode("ascii"))


class _NodeListener(socketserver.TCPServer):
    allow_reuse_address = True

    def __init__(self, node_id: str, port: int) -> None:
        super().__init__(("", port), _Greeter)
        self.node_id = node_id


@contextlib.contextmanager
def listening(nodes: Sequence[NodeSettings]) -> Iterator[dict[str, int]]:
    """Listens for every node on the first port of its range that is free; gives the port of each that does."""
    servers = [server for node in nodes if (server := _first_free(node)) is not None]
    threads = [
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}) for server in servers
    ]
    for thread in threads:
        thread.start()
    try:
        yield {server.node_id: server.server_address[1] for server in servers}
    finally:
        for server in servers:
            server.shutdown()
            server.server_close()
        for thread in threads:
            thread.join()


def greeting_of(address: str, port: int) -> str:
    """Who answers there: the node's name, or "" where something else does. OSError where nothing does."""
    with socket.create_connection((address, port), timeout=CONNECT_TIMEOUT_S) as connection:
        try:
            greeting = connection.recv(256).decode("ascii", errors="replace")
        except TimeoutError:
            return ""  # it listens, and waits for us to speak first
    return greeting.removeprefix(GREETING).strip() if greeting.startswith(GREETING) else ""


def _first_free(node: NodeSettings) -> _NodeListener | None:
    for port in range(node.port_first, node.port_last + 1):
        with contextlib.suppress(OSError):
            return _NodeListener(node.node_id, port)
    return None
