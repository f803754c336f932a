"""Two ends of a measurement over loopback: what is measured, and who is let in."""

from __future__ import annotations

import contextlib
import itertools
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from queue import Queue

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.errors import LinkProbeError
from agents.link_probe import probe
from agents.link_probe_listener import MAX_STRANGERS, listen_once
from agents.link_probe_rate import LEAST_WINDOW_S, Arrivals
from agents.link_probe_wire import (
    CONTROL,
    GREETING,
    LINE_BYTES,
    STREAM,
    Conversation,
    Patience,
    Surroundings,
    present_oneself,
)
from agents.protocol import LinkTest

TOKEN = "t" * 43


def surroundings(clock_s: Callable[[], float] = time.monotonic) -> Surroundings:
    numbers = itertools.count(1)
    return Surroundings(clock_s, lambda: f"{next(numbers):032x}")


def link_test(role: str, port: int, **changes: object) -> LinkTest:
    values: dict[str, object] = {
        "test_id": "linktest-1",
        "role": role,
        "address": "127.0.0.1",
        "port": port,
        "token": TOKEN,
        "streams": 2,
        "max_bytes": 3_000_000,
        "max_s": 5.0,
        "open_s": 20.0,
    }
    return LinkTest.model_validate({**values, **changes})


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@dataclass
class Listener:
    """The listening end in a thread; `ended` gets the error it ended with, or None."""

    port: int = field(default_factory=free_port)
    stopped: threading.Event = field(default_factory=threading.Event)
    ended: Queue[LinkProbeError | None] = field(default_factory=Queue)

    def end(self) -> LinkProbeError | None:
        return self.ended.get(timeout=20)


@contextmanager
def listening(**changes: object) -> Iterator[Listener]:
    listener, opened = Listener(), threading.Event()

    def run() -> None:
        try:
            listen_once(
                link_test("listen", listener.port, **changes), surroundings(), listener.stopped, opened.set
            )
        except LinkProbeError as error:
            listener.ended.put(error)
        else:
            listener.ended.put(None)

    thread = threading.Thread(target=run)
    thread.start()
    assert opened.wait(10)
    try:
        yield listener
    finally:
        listener.stopped.set()
        thread.join(20)
        assert not thread.is_alive()


def connected(listener: Listener) -> socket.socket:
    return socket.create_connection(("127.0.0.1", listener.port), timeout=10)


def measure(listener: Listener, **changes: object) -> object:
    return probe(link_test("connect", listener.port, **changes), surroundings(), threading.Event())


def test_latency_alone_takes_one_connection_and_no_bytes() -> None:
    with listening(streams=0) as listener:
        told = probe(link_test("connect", listener.port, streams=0), surroundings(), threading.Event())
        assert listener.end() is None
    assert told.latency_s is not None
    assert told.latency_s > 0
    assert (told.bandwidth_bps, told.sent_bytes) == (None, 0)


def test_no_more_bytes_are_sent_than_were_granted_and_their_rate_is_told() -> None:
    with listening() as listener:
        told = probe(link_test("connect", listener.port), surroundings(), threading.Event())
        assert listener.end() is None
    assert told.sent_bytes == 3_000_000
    assert told.is_floor, "3 MB are through before loopback is full"


def test_the_door_is_closed_once_the_prober_is_in() -> None:
    with listening(streams=0) as listener:
        measure(listener, streams=0)
        assert listener.end() is None
        with pytest.raises(LinkProbeError, match="refused"):
            measure(listener, streams=0)


def test_whoever_has_another_token_gets_no_further_and_the_right_one_still_does() -> None:
    with listening(streams=0) as listener:
        with pytest.raises(LinkProbeError, match=r"closed|broke"):
            measure(listener, streams=0, token="u" * 43)
        measure(listener, streams=0)
        assert listener.end() is None


def test_a_prober_sends_nothing_to_somebody_else_at_that_port() -> None:
    heard: Queue[bytes] = Queue()
    with socket.create_server(("127.0.0.1", 0)) as impostor:

        def pretend() -> None:
            connection, _ = impostor.accept()
            with connection:
                connection.sendall(f"{GREETING} {'0' * 32}\n".encode())
                heard.put(connection.recv(4096))
                connection.sendall(b"0" * 64 + b"\n")

        thread = threading.Thread(target=pretend)
        thread.start()
        with pytest.raises(LinkProbeError, match="does not have this measurement's token"):
            probe(link_test("connect", impostor.getsockname()[1]), surroundings(), threading.Event())
        first = heard.get(timeout=10)
        thread.join(10)
    assert TOKEN.encode() not in first, "the token does not travel"


GARBAGE = st.one_of(
    st.binary(min_size=1, max_size=2 * LINE_BYTES),
    st.builds(
        lambda purpose, nonce, proof: f"{purpose} {nonce} {proof}\n".encode(),
        st.sampled_from([CONTROL, STREAM, "listener", ""]),
        st.text("0123456789abcdef", min_size=30, max_size=34),
        st.text("0123456789abcdef", min_size=62, max_size=66),
    ),
)


@settings(max_examples=10, deadline=None)
@given(strangers=st.lists(GARBAGE, min_size=1, max_size=MAX_STRANGERS - 1))
def test_garbage_is_put_out_and_does_not_keep_the_prober_out(strangers: list[bytes]) -> None:
    with listening(streams=0) as listener:
        for garbage in strangers:
            with connected(listener) as stranger:
                told = b""
                with contextlib.suppress(OSError):  # it was put out
                    stranger.sendall(garbage)
                    stranger.shutdown(socket.SHUT_WR)
                    while received := stranger.recv(4096):
                        told += received
            assert told.count(b"\n") <= 1, "a stranger hears the greeting and nothing else"
        measure(listener, streams=0)
        assert listener.end() is None


@settings(max_examples=15, deadline=None)
@given(
    said=st.one_of(GARBAGE, st.builds(lambda nonce: f"{GREETING} {nonce}\n".encode(), st.text(max_size=600)))
)
def test_whatever_answers_at_that_port_a_prober_ends_with_an_error_of_its_own(said: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:

        def speak() -> None:
            connection, _ = other.accept()
            with connection, contextlib.suppress(OSError):  # the prober has left
                connection.sendall(said)
                connection.shutdown(socket.SHUT_WR)
                connection.recv(4096)

        thread = threading.Thread(target=speak)
        thread.start()
        with pytest.raises(LinkProbeError):
            probe(link_test("connect", other.getsockname()[1]), surroundings(), threading.Event())
        thread.join(10)


def test_a_listener_gives_up_after_too_many_strangers() -> None:
    with listening() as listener:
        for _ in range(MAX_STRANGERS):
            with connected(listener) as stranger, contextlib.suppress(OSError):
                stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
                stranger.recv(4096)
        assert "strangers" in str(listener.end())


def test_a_second_control_connection_is_put_out() -> None:
    with listening(streams=1) as listener:
        patience = Patience(time.monotonic, listener.stopped, 20.0)
        with connected(listener) as first, connected(listener) as second:
            present_oneself(Conversation(first, patience), TOKEN, "0" * 32, CONTROL)
            conversation = Conversation(second, patience)
            present_oneself(conversation, TOKEN, "1" * 32, CONTROL)
            with pytest.raises(LinkProbeError, match="closed"):
                conversation.hear()


def test_whoever_is_told_to_stop_does() -> None:
    with listening() as listener:
        stopped = threading.Event()
        stopped.set()
        with pytest.raises(LinkProbeError, match="told to stop"):
            probe(link_test("connect", listener.port), surroundings(), stopped)
        listener.stopped.set()
        assert "told to stop" in str(listener.end())


def test_a_listener_to_whom_nobody_comes_ends_by_its_own_clock() -> None:
    hours = itertools.count(step=3600.0)
    with pytest.raises(LinkProbeError, match="longer than 20 s"):
        listen_once(
            link_test("listen", free_port()), surroundings(lambda: next(hours)), threading.Event(), int
        )


def test_a_port_that_is_taken_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(LinkProbeError, match=str(port)):
            listen_once(link_test("listen", port), surroundings(), threading.Event(), int)


class Stepped:
    """A clock that tests set."""

    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def arrivals(rates_bps: list[tuple[float, float]]) -> Arrivals:
    """Bytes as they come at these (seconds, bit/s), one after the other."""
    clock = Stepped()
    found = Arrivals(clock)
    found.add(0)
    for seconds, rate_bps in rates_bps:
        for _ in range(round(seconds * 100)):
            clock.now_s += 0.01
            found.add(round(rate_bps * 0.01 / 8))
    return found


def test_slow_start_is_left_out() -> None:
    told = arrivals([(1.0, 1e6), (2.0, 100e6)]).told(left_out_s=0.5)
    assert told["bandwidth_bps"] == pytest.approx(100e6, rel=0.01)
    assert told["is_floor"] is False


def test_more_is_left_out_where_round_trips_are_long() -> None:
    told = arrivals([(2.0, 1e6), (1.0, 100e6)]).told(left_out_s=2.0)
    assert told["bandwidth_bps"] == pytest.approx(100e6, rel=0.02)


def test_what_was_not_full_for_long_enough_is_a_floor() -> None:
    told = arrivals([(1.0, 80e6)]).told(left_out_s=1.0 - LEAST_WINDOW_S / 2)
    assert told["is_floor"] is True
    assert told["bandwidth_bps"] == pytest.approx(80e6, rel=0.02)


def test_a_moment_gives_no_rate() -> None:
    assert arrivals([(0.01, 80e6)]).told(left_out_s=0.0)["bandwidth_bps"] is None


def test_what_comes_after_the_first_end_does_not_count_in_the_rate() -> None:
    found = arrivals([(2.0, 100e6)])
    found.one_has_ended()
    for _ in range(100):
        found.add(1)
    assert found.told(left_out_s=0.0)["bandwidth_bps"] == pytest.approx(100e6, rel=0.01)
