"""`ports.Db` on a bounded pool of threads, and its twin that works inline."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from sqlalchemy import Engine
from sqlalchemy.orm import Session

from service import topics
from service.db.engine import Mode
from service.db.transaction import transact
from service.ports import Bus

T = TypeVar("T")


class ThreadPoolDb:
    """Reads side by side; writes side by side on PostgreSQL, and one after the other on SQLite.

    SQLite has one writer at a time anyway: a queue in front of a single thread is faster than threads that poll
    for its lock. After a commit that wrote events, the followers of events are woken.
    """

    def __init__(self, engine: Engine, bus: Bus, threads: int = 4) -> None:
        self._engine = engine
        self._bus = bus
        self._readers = ThreadPoolExecutor(threads, thread_name_prefix="db-read")
        writers = 1 if engine.dialect.name == "sqlite" else threads
        self._writers = ThreadPoolExecutor(writers, thread_name_prefix="db-write")

    async def run(self, work: Callable[[Session], T]) -> T:
        loop = asyncio.get_running_loop()
        result, wrote_events = await loop.run_in_executor(
            self._writers, transact, self._engine, Mode.WRITE, work
        )
        if wrote_events:
            await self._bus.publish(topics.EVENTS)
        return result

    async def read(self, work: Callable[[Session], T]) -> T:
        loop = asyncio.get_running_loop()
        result, _ = await loop.run_in_executor(self._readers, transact, self._engine, Mode.READ, work)
        return result

    def close(self) -> None:
        """Waits for what runs, then closes the connections."""
        self._writers.shutdown()
        self._readers.shutdown()
        self._engine.dispose()


class InlineDb:
    """The same in the caller's thread: for tests on a virtual clock."""

    def __init__(self, engine: Engine, bus: Bus) -> None:
        self._engine = engine
        self._bus = bus

    async def run(self, work: Callable[[Session], T]) -> T:
        result, wrote_events = transact(self._engine, Mode.WRITE, work)
        if wrote_events:
            await self._bus.publish(topics.EVENTS)
        return result

    async def read(self, work: Callable[[Session], T]) -> T:
        return transact(self._engine, Mode.READ, work)[0]

    def close(self) -> None:
        """Closes the connections."""
        self._engine.dispose()
