"""What the links of a bed are, by sockets of our own in two regions: latency one way, and throughput."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass

from service.cli.testbed.bed import Bed
from service.cli.testbed.network import Link

MESSAGES = 9
WARM_UP_MESSAGES = 3
"""Not counted: the window of a new connection grows with every round trip."""
BULK_S = 1.0
WARM_UP_S = 0.5
TIMEOUT_S = 30.0
CHUNK = bytes(65536)


@dataclass(frozen=True, slots=True)
class Measured:
    """One direction, as asked and as measured."""

    src: str
    dst: str
    latency_ms: float
    mbps: float
    measured_latency_ms: float
    """One way: both ends have the same clock here. The shortest of some messages."""
    measured_mbps: float
    """Payload of one TCP connection."""


def measure(bed: Bed, link: Link) -> Measured:
    """One direction of a link, in some seconds. Raises OSError where nothing comes through."""
    with _connected(bed, link) as (near, far):
        latency_s = min(_one_way(near, far, b"."))
        mbps = _throughput(near, far) / 1e6
    return Measured(link.src, link.dst, link.latency_ms, link.mbps, latency_s * 1e3, mbps)


def message_s(bed: Bed, link: Link, message_bytes: int) -> float:
    """Seconds from when a message is given to an idle link until all of it has arrived.

    The shortest of some: a link is never early, but on a busy machine we are late to look.
    """
    with _connected(bed, link) as (near, far):
        return min(_one_way(near, far, bytes(message_bytes)))


@contextlib.contextmanager
def _connected(bed: Bed, link: Link) -> Iterator[tuple[socket.socket, socket.socket]]:
    with contextlib.ExitStack() as opened:
        with bed.namespace(link.dst).inside():
            listener = opened.enter_context(socket.create_server((bed.address(link.dst), 0)))
        with bed.namespace(link.src).inside():
            near = opened.enter_context(socket.create_connection(listener.getsockname(), TIMEOUT_S))
        far = opened.enter_context(listener.accept()[0])
        far.settimeout(TIMEOUT_S)
        near.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield near, far


def _one_way(near: socket.socket, far: socket.socket, message: bytes) -> list[float]:
    took = []
    for _ in range(WARM_UP_MESSAGES + MESSAGES):
        begin_s = time.perf_counter()
        near.sendall(message)
        missing = len(message)
        while missing:
            missing -= len(far.recv(missing))
        took.append(time.perf_counter() - begin_s)
    return took[WARM_UP_MESSAGES:]


def _throughput(near: socket.socket, far: socket.socket) -> float:
    """Bits per second at the far end, once the connection has found its window."""
    ending = threading.Event()

    def send() -> None:
        while not ending.is_set():
            near.sendall(CHUNK)
        near.shutdown(socket.SHUT_WR)

    sender = threading.Thread(target=send)
    sender.start()
    begin_s = now_s = from_s = time.perf_counter()
    received = 0
    while now_s < begin_s + WARM_UP_S + BULK_S:
        received += len(far.recv(len(CHUNK)))
        now_s = time.perf_counter()
        if now_s < begin_s + WARM_UP_S:
            from_s, received = now_s, 0
    ending.set()
    while far.recv(len(CHUNK)):
        pass
    sender.join(TIMEOUT_S)
    return received * 8 / (now_s - from_s)
