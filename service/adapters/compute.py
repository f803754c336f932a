"""Where planning is done: away from the event loop, so that heartbeats are answered meanwhile."""

from __future__ import annotations

import asyncio
from collections import Counter
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

    async def run(self, function: Callable[[], T], asker: str | None = None) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, function)

    def close(self) -> None:
        """Waits for what runs."""
        self._threads.shutdown()


class BoundedCompute:
    """`ports.Compute` for what clients ask: so many computations wait or run at once and no more, and of one token half
    as many."""

    def __init__(self, compute: Compute, most: int, refused: Callable[[], None]) -> None:
        """`refused` is called for each that is turned away."""
        self._compute, self._most, self._refused = compute, most, refused
        self._most_of_one = max(1, most // 2)
        self._inside: Counter[str | None] = Counter()

    async def run(self, function: Callable[[], T], asker: str | None = None) -> T:
        """Raises RateLimitedError beyond the bound."""
        whole = self._inside.total() >= self._most
        if whole or (asker is not None and self._inside[asker] >= self._most_of_one):
            self._refused()
            how_many = self._most if whole else f"{self._most_of_one} of this token's"
            raise RateLimitedError(
                f"{how_many} plans, explanations and comparisons are being computed or wait for it: try again",
                RETRY_AFTER_S,
            )
        self._inside[asker] += 1
        try:
            return await self._compute.run(function)
        finally:
            self._inside[asker] -= 1
            if not self._inside[asker]:
                del self._inside[asker]

    def close(self) -> None:
        """Waits for what runs."""
        self._compute.close()


class InlineCompute:
    """`ports.Compute` in the caller's thread: for tests on a virtual clock."""

    async def run(self, function: Callable[[], T], asker: str | None = None) -> T:
        return function()

    def close(self) -> None:
        """Nothing to wait for."""
