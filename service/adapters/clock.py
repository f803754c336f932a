"""The machine's own time."""

from __future__ import annotations

import asyncio
import time


class SystemClock:
    """`ports.Clock` by the operating system."""

    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
