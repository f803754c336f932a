"""What the two agents of a measurement say to each other: short lines, and a proof on both sides.

    listener    bace-link 1 <its nonce>
    prober      control|stream <its nonce> <proof>
    listener    <proof>

A proof is the HMAC-SHA256 of who speaks and both nonces under the measurement's token, which itself does not travel:
whoever listens in, or is connected by accident, learns nothing that opens anything. After it, on the control
connection, the prober says `ping <number>` and gets it back, then `stream <seconds to leave out>` and, once the streams
have ended, gets what arrived as JSON.

Every read is bounded, in bytes and in time.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass

from agents.errors import LinkProbeError

GREETING = "bace-link 1"
CONTROL, STREAM = "control", "stream"
LINE_BYTES = 512
TICK_S = 0.1
"""Whoever waits looks so often whether it is to wait on."""
HANDSHAKE_S = 5.0
_NONCE = re.compile(r"[0-9a-f]{32}")
_PROOF = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The machine of a measurement: its steady clock (seconds), and dice."""

    clock_s: Callable[[], float]
    nonce: Callable[[], str]
    """32 hexadecimal digits, never the same twice."""


class Patience:
    """Until when a measurement may go on, and whether it is still wanted."""

    def __init__(self, clock_s: Callable[[], float], stopped: threading.Event, within_s: float) -> None:
        self._clock_s = clock_s
        self._stopped = stopped
        self._within_s = within_s
        self._until_s = clock_s() + within_s

    def check(self) -> None:
        """Raises LinkProbeError where it is over."""
        if self._stopped.is_set():
            raise LinkProbeError("told to stop")
        if self._clock_s() >= self._until_s:
            raise LinkProbeError(f"it took longer than {self._within_s:g} s")

    def rest(self, seconds: float) -> None:
        """Waits, unless it is told to stop. Raises LinkProbeError then."""
        self._stopped.wait(seconds)
        self.check()

    def at_most(self, within_s: float) -> Patience:
        """The same, and no longer than that from now on."""
        return Patience(
            self._clock_s, self._stopped, max(0.0, min(within_s, self._until_s - self._clock_s()))
        )


class Conversation:
    """Lines of ASCII over a connection."""

    def __init__(self, connection: socket.socket, patience: Patience) -> None:
        connection.settimeout(TICK_S)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.connection = connection
        self.patience = patience
        self._heard = b""

    def say(self, line: str) -> None:
        """Raises LinkProbeError where the other side has gone."""
        try:
            self.connection.sendall(line.encode("ascii") + b"\n")
        except OSError as error:
            raise LinkProbeError(f"the connection broke: {error}") from error

    def hear(self) -> str:
        """The next line. Raises LinkProbeError where there is none in time, or it is not one."""
        while b"\n" not in self._heard:
            if len(self._heard) >= LINE_BYTES:
                raise LinkProbeError(f"a line of more than {LINE_BYTES} bytes")
            self.patience.check()
            try:
                received = self.connection.recv(LINE_BYTES - len(self._heard))
            except TimeoutError:
                continue
            except OSError as error:
                raise LinkProbeError(f"the connection broke: {error}") from error
            if not received:
                raise LinkProbeError("the other side closed the connection")
            self._heard += received
        line, _, self._heard = self._heard.partition(b"\n")
        try:
            return line.decode("ascii")
        except UnicodeDecodeError as error:
            raise LinkProbeError("a line that is not text") from error


def receive_guest(conversation: Conversation, token: str, nonce: str) -> str:
    """The listener's part of the beginning: what the connection is for. Raises LinkProbeError for a stranger."""
    conversation.say(f"{GREETING} {nonce}")
    purpose, theirs, shown = _words(conversation.hear(), 3)
    if purpose not in (CONTROL, STREAM) or not _NONCE.fullmatch(theirs):
        raise LinkProbeError("it does not speak as an agent")
    _check_proof(shown, _proof(token, purpose, nonce, theirs))
    conversation.say(_proof(token, "listener", nonce, theirs))
    return purpose


def present_oneself(conversation: Conversation, token: str, nonce: str, purpose: str) -> None:
    """The prober's part of the beginning. Raises LinkProbeError where the other side is not who it should be."""
    greeting, version, theirs = _words(conversation.hear(), 3)
    if f"{greeting} {version}" != GREETING or not _NONCE.fullmatch(theirs):
        raise LinkProbeError("what listens there is not the agent that was asked to")
    conversation.say(f"{purpose} {nonce} {_proof(token, purpose, theirs, nonce)}")
    (shown,) = _words(conversation.hear(), 1)
    _check_proof(shown, _proof(token, "listener", theirs, nonce))


def _words(line: str, count: int) -> list[str]:
    words = line.split(" ")
    if len(words) != count:
        raise LinkProbeError("it does not speak as an agent")
    return words


def _proof(token: str, who: str, listeners_nonce: str, probers_nonce: str) -> str:
    said = f"{who} {listeners_nonce} {probers_nonce}"
    return hmac.new(token.encode(), said.encode(), hashlib.sha256).hexdigest()


def _check_proof(shown: str, expected: str) -> None:
    if not _PROOF.fullmatch(shown) or not hmac.compare_digest(shown, expected):
        raise LinkProbeError("the other side does not have this measurement's token")
