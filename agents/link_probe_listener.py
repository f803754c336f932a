"""The listening end of a measurement: lets in the connections of one prober, then closes its door, and counts.

The door is the advertised address, at the port that the server chose of the node's range. Whoever cannot prove to have
the token is put out again, at most `MAX_STRANGERS` times.
"""

from __future__ import annotations

import contextlib
import errno
import json
import selectors
import socket
import threading
from collections.abc import Callable, Iterator, Sequence

from agents.errors import LinkProbeError
from agents.link_probe_rate import Arrivals
from agents.link_probe_wire import (
    CONTROL,
    HANDSHAKE_S,
    STREAM,
    TICK_S,
    Conversation,
    Patience,
    Surroundings,
    receive_guest,
)
from agents.protocol import LinkTest

MAX_STRANGERS = 16
SESSION_S = 30.0
"""Beyond the time of the streams, for round trips and for what is under way."""
MAX_PINGS = 1000
READ_BYTES = 256 * 1024
TOLERATED = 1.1
"""What arrives may exceed what was asked for by so much before it is put an end to."""


def listen_once(
    test: LinkTest, surroundings: Surroundings, stopped: threading.Event, opened: Callable[[], None]
) -> None:
    """Take part in one measurement; `opened` is called as soon as it can be connected to.

    Raises LinkProbeError where the door cannot be opened, nobody comes in `open_s`, or it is broken off.
    """
    with contextlib.ExitStack() as guests:
        with _door(test) as door:
            opened()
            patience = Patience(surroundings.clock_s, stopped, test.open_s)
            control, streams = _let_in(door, test, surroundings, patience, guests)
        control.patience = Patience(surroundings.clock_s, stopped, test.max_s + SESSION_S)
        left_out_s = _answer_pings(control)
        if left_out_s is None or not streams:
            return
        arrivals = Arrivals(surroundings.clock_s)
        _count(streams, arrivals, test, control.patience)
        control.say(json.dumps(arrivals.told(left_out_s)))


@contextlib.contextmanager
def _door(test: LinkTest) -> Iterator[socket.socket]:
    """Listens. Behind address translation the advertised address is no address here: then on all of them."""
    try:
        family, _, _, _, where = socket.getaddrinfo(test.address, test.port, type=socket.SOCK_STREAM)[0]
        door = socket.socket(family, socket.SOCK_STREAM)
    except OSError as error:
        raise LinkProbeError(f"{test.address}: {error}") from error
    with door:
        door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            try:
                door.bind(where)
            except OSError as error:
                if error.errno != errno.EADDRNOTAVAIL:
                    raise
                door.bind(("", test.port))
            door.listen(test.streams + 2)
        except OSError as error:
            raise LinkProbeError(f"port {test.port} of {test.address}: {error}") from error
        door.settimeout(TICK_S)
        yield door


def _let_in(
    door: socket.socket,
    test: LinkTest,
    surroundings: Surroundings,
    patience: Patience,
    guests: contextlib.ExitStack,
) -> tuple[Conversation, list[socket.socket]]:
    """The control connection, and as many streams as the measurement has."""
    control: Conversation | None = None
    streams: list[socket.socket] = []
    strangers = 0
    while control is None or len(streams) < test.streams:
        patience.check()
        try:
            connection, _ = door.accept()
        except TimeoutError:
            continue
        except OSError as error:
            raise LinkProbeError(f"the listener broke: {error}") from error
        conversation = Conversation(connection, patience.at_most(HANDSHAKE_S))
        try:
            purpose = receive_guest(conversation, test.token, surroundings.nonce())
            if purpose == (CONTROL if control is not None else STREAM):
                raise LinkProbeError("a connection that nobody waits for")
        except LinkProbeError as error:
            connection.close()
            patience.check()
            strangers += 1
            if strangers >= MAX_STRANGERS:
                raise LinkProbeError(f"{strangers} connections of strangers; the last: {error}") from error
            continue
        guests.callback(connection.close)
        if control is None:
            control = conversation
        else:
            streams.append(connection)
    return control, streams


def _answer_pings(control: Conversation) -> float | None:
    """Until the streams begin: the seconds of theirs to leave out. None where there are to be none."""
    for _ in range(MAX_PINGS):
        try:
            line = control.hear()
        except LinkProbeError:
            control.patience.check()
            return None  # the prober has what it wanted
        said, _, rest = line.partition(" ")
        if said == "ping":
            control.say(line)
        elif said == "stream":
            try:
                return min(max(float(rest), 0.0), 60.0)
            except ValueError as error:
                raise LinkProbeError("it does not say how much to leave out") from error
        else:
            raise LinkProbeError("it asks for what nobody offers")
    raise LinkProbeError("it does not come to an end")


def _count(streams: Sequence[socket.socket], arrivals: Arrivals, test: LinkTest, patience: Patience) -> None:
    """Reads all streams to their ends."""
    buffer = bytearray(READ_BYTES)
    with selectors.DefaultSelector() as selector:
        for stream in streams:
            stream.setblocking(False)
            selector.register(stream, selectors.EVENT_READ)
        while selector.get_map():
            patience.check()
            for key, _ in selector.select(TICK_S):
                try:
                    count = key.fileobj.recv_into(buffer)  # type: ignore[union-attr]
                except BlockingIOError:
                    continue
                except OSError as error:
                    raise LinkProbeError(f"a stream broke: {error}") from error
                if count:
                    arrivals.add(count)
                else:
                    arrivals.one_has_ended()
                    selector.unregister(key.fileobj)
            if arrivals.total_bytes > TOLERATED * test.max_bytes + READ_BYTES * len(streams):
                raise LinkProbeError(f"more than the {test.max_bytes} bytes that were asked for")
