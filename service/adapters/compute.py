"""Where planning is done: away from the event loop, so that heartbeats are answered meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


class ThreadCompute:
    """`ports.Compute` on threads of its own."""

    def __init__(self, threads: int = 2) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="compute")

    async def run(self, function: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, function)

    def close(self) -> None:
        """Waits for what runs."""
        self._threads.shutdown()


class InlineCompute:
    """`ports.Compute` in the caller's thread: for tests on a virtual clock."""

    async def run(self, function: Callable[[], T]) -> T:
        return function()

    def close(self) -> None:
        """Nothing to wait for."""
