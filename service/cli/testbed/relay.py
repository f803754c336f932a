"""The links: each direction is a first-in-first-out line with a bandwidth and a latency.

A packet occupies its line for its bits / bandwidth, from when it was taken or the line was free, and arrives the
latency after that. Lateness does not add up: a line is as long busy as it ought to be, and where the relay comes late,
the next packets are handed on the sooner. (The kernel's own way to keep a bandwidth, tbf, loses the time by which its
timers are late: a sixth at 100 Mbit/s on two busy cores.)
"""

from __future__ import annotations

import contextlib
import os
import select
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

PACKET_BYTES = 65536
PACKETS_AT_ONCE = 32
MAX_WAIT_S = 10.0


@dataclass(slots=True)
class DelayLine:
    """One direction: packets from the file `source` appear at the file `target`, late as the link makes them."""

    source: int
    target: int
    latency_s: float
    seconds_a_byte: float
    free_s: float = 0.0
    """When the last packet will have left the line, on the monotonic clock."""
    waiting: deque[tuple[float, bytes]] = field(default_factory=deque)
    """Packets, and when they arrive."""

    def take(self) -> None:
        """Take in what is there. What would wait too long is dropped, as by a router whose buffer is full."""
        with contextlib.suppress(BlockingIOError):
            for _ in range(PACKETS_AT_ONCE):
                packet = os.read(self.source, PACKET_BYTES)
                start_s = max(time.monotonic(), self.free_s)
                if start_s - time.monotonic() < MAX_WAIT_S:
                    self.free_s = start_s + len(packet) * self.seconds_a_byte
                    self.waiting.append((self.free_s + self.latency_s, packet))

    def hand_on(self) -> float:
        """Hand on what is due; when the next is due, on the monotonic clock."""
        while self.waiting:
            due_s, packet = self.waiting[0]
            if due_s > time.monotonic():
                return due_s
            self.waiting.popleft()
            os.write(self.target, packet)
        return float("inf")


def relay(
    lines: Iterable[DelayLine], control: int | None = None, obey: Callable[[bytes], None] | None = None
) -> None:
    """Forward for ever, or until the file `control` ends; what comes on it is handed to `obey`."""
    by_source = {line.source: line for line in lines}
    files = [*by_source, *([] if control is None else [control])]
    while True:
        due_s = min((line.hand_on() for line in by_source.values()), default=float("inf"))
        wait_s = None if due_s == float("inf") else max(0.0, due_s - time.monotonic())
        for file in select.select(files, (), (), wait_s)[0]:
            if file in by_source:
                by_source[file].take()
            elif not (said := os.read(file, PACKET_BYTES)):
                return
            elif obey is not None:
                obey(said)


def run_in_real_time() -> None:
    """Let the relay run before everything else that wants the processor: a late relay is a longer link."""
    with contextlib.suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
