"""Clocks: one truth (the loop's time), and how those look at it who cannot know it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

NEW_MONTH_S = 1_801_440_000.0
"""The first of February 2027, UTC."""
START_S = NEW_MONTH_S - 75.0
"""Epoch seconds at which every world begins: what is counted by the month begins anew while it lives."""


@dataclass(slots=True)
class HostClock:
    """The clocks of one machine, `agents.processes.Clock`: that since boot drifts, that on the wall also steps."""

    loop: asyncio.AbstractEventLoop
    drift: float
    """Seconds gained each second."""
    skew_s: float
    booted_at_s: float = 0.0

    def epoch_s(self) -> float:
        return START_S + self.loop.time() * (1.0 + self.drift) + self.skew_s

    def boot_s(self) -> float:
        return (self.loop.time() - self.booted_at_s) * (1.0 + self.drift)

    def when(self, boot_s: float) -> float:
        """The loop's time at which `boot_s` will be reached."""
        return self.booted_at_s + boot_s / (1.0 + self.drift)


class Gate:
    """Lets everybody through while it is open: a process that is stopped (SIGSTOP) waits before it."""

    def __init__(self) -> None:
        self._open = asyncio.Event()
        self._open.set()
        self._waiting: list[Callable[[], None]] = []

    @property
    def is_open(self) -> bool:
        return self._open.is_set()

    def close(self) -> None:
        self._open.clear()

    def open(self) -> None:
        self._open.set()
        waiting, self._waiting = self._waiting, []
        for goes_on in waiting:
            goes_on()

    def when_open(self, goes_on: Callable[[], None]) -> None:
        """Calls it now, or as the first thing once the gate opens."""
        if self.is_open:
            goes_on()
        else:
            self._waiting.append(goes_on)

    def stop_for(self, seconds: float) -> None:
        """Close now, and open by itself."""
        self.close()
        asyncio.get_running_loop().call_later(seconds, self.open)

    async def through(self) -> None:
        if not self._open.is_set():
            await self._open.wait()
