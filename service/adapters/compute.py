"""Where planning is done: away from the event loop, so that heartbeats are answered meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from service.errors import RateLimitedError
from service.ports import Compute

T = TypeVar("T")

RETRY_AFTER_S = 5.0
"""A large one takes so long."""


class ThreadCompute:
    """`ports.Compute` on threads of its own."""

    def __init__(self, threads: int = 2) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="compute")

    async def run(self, function: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, function)

    def close(self) -> None:
        """Waits for what runs."""
        self._threads.shutdown()


class BoundedCompute:
    """`ports.Compute` for what clients ask: so many computations wait or run at once and no more."""

    def __init__(self, compute: Compute, most: int, refused: Callable[[], None]) -> None:
        """`refused` is called for each that is turned away."""
        self._compute, self._most, self._refused = compute, most, refused
        self._inside = 0

    async def run(self, function: Callable[[], T]) -> T:
        """Raises RateLimitedError beyond the bound."""
        if self._inside >= self._most:
            self._refused()
            raise RateLimitedError(
                f"{self._most} plans, explanations and comparisons are being computed or wait for it: try again",
                RETRY_AFTER_S,
            )
        self._inside += 1
        try:
            return await self._compute.run(function)
        finally:
            self._inside -= 1

    def close(self) -> None:
        """Waits for what runs."""
        self._compute.close()


class InlineCompute:
    """`ports.Compute` in the caller's thread: for tests on a virtual clock."""

    async def run(self, function: Callable[[], T]) -> T:
        return function()

    def close(self) -> None:
        """Nothing to wait for."""
