"""The measuring end of a measurement: round trips first, then as many bytes as were granted.

Latency is half of the shortest of `PINGS` round trips, by this side's clock. Bandwidth is what arrived at the other
side in a second, by its clock, all streams together, without the beginning: ten round trips, in which slow start
comes from ten segments to any window that a link of today needs, or a third of the time.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import struct
import threading
from collections.abc import Iterator, Sequence

from pydantic import ValidationError

from agents.errors import LinkProbeError
from agents.link_probe_rate import Received
from agents.link_probe_wire import (
    CONTROL,
    HANDSHAKE_S,
    STREAM,
    TICK_S,
    Conversation,
    Patience,
    Surroundings,
    present_oneself,
)
from agents.protocol import LinkTest, LinkTestReport

PINGS = 12
PING_EVERY_S = 0.02
SLOW_START_ROUND_TRIPS = 10.0
SESSION_S = 30.0
"""Beyond the time of the streams."""
WRITE_BYTES = 256 * 1024
UNSENT_BYTES = 128 * 1024
"""What waits in the kernel unsent: little, so that a measurement that is broken off sends no more."""


def probe(test: LinkTest, surroundings: Surroundings, stopped: threading.Event) -> LinkTestReport:
    """Measure. Raises LinkProbeError where it cannot be, or is broken off."""
    patience = Patience(surroundings.clock_s, stopped, test.max_s + SESSION_S)
    with contextlib.ExitStack() as connections:
        control = connections.enter_context(_connected(test, surroundings, patience, CONTROL))
        streams = [
            connections.enter_context(_connected(test, surroundings, patience, STREAM)).connection
            for _ in range(test.streams)
        ]
        round_trip_s = _shortest_round_trip_s(control, surroundings)
        latency_s = max(round_trip_s / 2, 1e-7)
        if not streams:
            return LinkTestReport(test_id=test.test_id, state="done", latency_s=latency_s)
        control.say(f"stream {SLOW_START_ROUND_TRIPS * round_trip_s:.6f}")
        sent_bytes = _send(streams, test, surroundings, patience)
        received = _heard(control)
    return LinkTestReport(
        test_id=test.test_id,
        state="done",
        latency_s=latency_s,
        bandwidth_bps=received.bandwidth_bps,
        is_floor=received.is_floor,
        sent_bytes=sent_bytes,
    )


@contextlib.contextmanager
def _connected(
    test: LinkTest, surroundings: Surroundings, patience: Patience, purpose: str
) -> Iterator[Conversation]:
    try:
        connection = socket.create_connection((test.address, test.port), timeout=HANDSHAKE_S)
    except OSError as error:
        raise LinkProbeError(f"{test.address}:{test.port}: {error}") from error
    with connection:
        # What is unsent when it is closed is dropped.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        conversation = Conversation(connection, patience.at_most(HANDSHAKE_S))
        present_oneself(conversation, test.token, surroundings.nonce(), purpose)
        conversation.patience = patience
        yield conversation


def _shortest_round_trip_s(control: Conversation, surroundings: Surroundings) -> float:
    shortest_s = float("inf")
    for number in range(PINGS):
        sent_at_s = surroundings.clock_s()
        control.say(f"ping {number}")
        if control.hear() != f"ping {number}":
            raise LinkProbeError("the other side does not answer what it was asked")
        shortest_s = min(shortest_s, surroundings.clock_s() - sent_at_s)
        control.patience.rest(PING_EVERY_S)
    return shortest_s


def _send(
    streams: Sequence[socket.socket], test: LinkTest, surroundings: Surroundings, patience: Patience
) -> int:
    """Fills the link until bytes or time have run out; how many bytes that was."""
    chunk = memoryview(os.urandom(WRITE_BYTES))  # noqa: TID251 - so that nothing on the way can make it smaller
    sent_bytes = 0
    until_s = surroundings.clock_s() + test.max_s
    with selectors.DefaultSelector() as selector:
        for stream in streams:
            stream.setblocking(False)
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT_BYTES)
            selector.register(stream, selectors.EVENT_WRITE)
        while sent_bytes < test.max_bytes and surroundings.clock_s() < until_s:
            patience.check()
            for key, _ in selector.select(TICK_S):
                try:
                    sent_bytes += key.fileobj.send(chunk[: test.max_bytes - sent_bytes])  # type: ignore[union-attr]
                except BlockingIOError:
                    continue
                except OSError as error:
                    raise LinkProbeError(f"a stream broke: {error}") from error
    for stream in streams:
        try:
            stream.shutdown(socket.SHUT_WR)
        except OSError as error:
            raise LinkProbeError(f"a stream broke: {error}") from error
    return sent_bytes


def _heard(control: Conversation) -> Received:
    try:
        return Received.model_validate_json(control.hear())
    except ValidationError as error:
        raise LinkProbeError("the other side does not say what arrived") from error
