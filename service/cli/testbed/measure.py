"""What the links of a bed are: round trips and throughput between two regions, by sockets of our own."""

from __future__ import annotations

import contextlib
import socket
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from service.cli.testbed.bed import Bed

PINGS = 20
BULK_S = 1.5
WARM_UP_S = 0.5
"""Of a bulk transfer, not counted: the window of a new connection grows with every round trip."""
TIMEOUT_S = 30.0
CHUNK = bytes(65536)


@dataclass(frozen=True, slots=True)
class Measured:
    """One direction, as asked and as measured."""

    src: str
    dst: str
    latency_ms: float
    mbps: float
    measured_rtt_ms: float
    """Median of some round trips of one small packet, over this direction and back."""
    measured_mbps: float
    """Payload of one TCP connection, after its beginning."""


def measure(bed: Bed) -> Iterator[Measured]:
    """Every direction of every link, one after the other."""
    for link in bed.network.links:
        with _connected(bed, link.src, link.dst) as (near, far):
            rtt_s = statistics.median(_round_trips(near, far))
            yield Measured(
                link.src, link.dst, link.latency_ms, link.mbps, rtt_s * 1e3, _throughput(near, far) / 1e6
            )


@contextlib.contextmanager
def _connected(bed: Bed, src: str, dst: str) -> Iterator[tuple[socket.socket, socket.socket]]:
    with contextlib.ExitStack() as open_sockets:
        with bed.namespace(dst).inside():
            listener = open_sockets.enter_context(socket.socket())
        listener.bind((bed.address(dst), 0))
        listener.listen(1)
        with bed.namespace(src).inside():
            near = open_sockets.enter_context(socket.socket())
        near.connect(listener.getsockname())
        far = open_sockets.enter_context(listener.accept()[0])
        for each in (near, far):
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            each.settimeout(TIMEOUT_S)
        yield near, far


def _round_trips(near: socket.socket, far: socket.socket) -> list[float]:
    def answer() -> None:
        for _ in range(PINGS):
            far.sendall(far.recv(1))

    with _beside(answer):
        took = []
        for _ in range(PINGS):
            begin_s = time.perf_counter()
            near.sendall(b".")
            near.recv(1)
            took.append(time.perf_counter() - begin_s)
    return took


def _throughput(near: socket.socket, far: socket.socket) -> float:
    """Bits per second at the far end, once the connection has found its window."""
    ending = threading.Event()

    def send() -> None:
        while not ending.is_set():
            near.sendall(CHUNK)
        near.shutdown(socket.SHUT_WR)

    with _beside(send):
        begin_s = time.perf_counter()
        counted = 0
        from_s = begin_s
        while (now_s := time.perf_counter()) < begin_s + WARM_UP_S + BULK_S:
            if now_s < begin_s + WARM_UP_S:
                from_s, counted = now_s, 0
            counted += len(far.recv(len(CHUNK)))
        bps = counted * 8 / (now_s - from_s)
        ending.set()
        while far.recv(len(CHUNK)):
            pass
    return bps


@contextlib.contextmanager
def _beside(work: Callable[[], None]) -> Iterator[None]:
    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        thread.join(TIMEOUT_S)
