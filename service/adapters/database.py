"""`ports.Db` on a bounded pool of threads, and its twin that works inline."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from sqlalchemy import Engine

from service import topics
from service.db.engine import Mode
from service.db.group import Outcome, Unit, transact_group
from service.db.session import Session
from service.db.together import Many, Together
from service.db.transaction import transact
from service.errors import UnavailableError
from service.limits import MAX_WAITING_WRITES
from service.ports import Bus

A = TypeVar("A")
R = TypeVar("R")
T = TypeVar("T")

GROUP_UNITS = 64
"""Units that share one commit at most: enough for the wait for the disk to be small beside their own work, and few
enough for nobody to wait long for the others'."""


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A unit of work, and whom its outcome is for."""

    unit: Unit
    outcome: asyncio.Future[Outcome]


class ThreadPoolDb:
    """Reads side by side; writes in groups: whatever has come in while a commit was under way shares the next one.

    One group at a time. SQLite has one writer anyway, and on PostgreSQL writers take turns at the event log until they
    have committed: a second group would wait for the first with what it has read growing old, and be run again. Nobody
    waits for a group to fill. After a commit that wrote events, the followers of events are woken.
    """

    def __init__(self, engine: Engine, bus: Bus, threads: int = 4) -> None:
        self._engine = engine
        self._bus = bus
        self._readers = ThreadPoolExecutor(threads, thread_name_prefix="db-read")
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="db-write")
        self._is_writing = False
        self._waiting: deque[_Waiting] = deque()
        self._together = Together(self.run)

    async def run(self, work: Callable[[Session], T]) -> T:
        """Raises UnavailableError where too many writes are waiting already; nothing is stored then."""
        if len(self._waiting) >= MAX_WAITING_WRITES:
            raise UnavailableError(
                f"{MAX_WAITING_WRITES} changes are waiting to be stored; this one was not, try again"
            )
        waiting = _Waiting(work, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        self._begin_group()
        outcome = await waiting.outcome
        if outcome.error is not None:
            raise outcome.error
        if outcome.wrote_events:
            await self._bus.publish(topics.EVENTS)
        result: T = outcome.result
        return result

    async def together(self, work: Many[A, R], item: A) -> R | None:
        return await self._together.do(work, item)

    def _begin_group(self) -> None:
        """Hands the next group to the writer, if it is idle and anybody waits."""
        if self._is_writing or not self._waiting:
            return
        self._is_writing = True
        group = [self._waiting.popleft() for _ in range(min(GROUP_UNITS, len(self._waiting)))]
        done = asyncio.get_running_loop().run_in_executor(
            self._writer, transact_group, self._engine, [each.unit for each in group]
        )
        done.add_done_callback(partial(self._end_group, group))

    def _end_group(self, group: Sequence[_Waiting], done: asyncio.Future[list[Outcome]]) -> None:
        self._is_writing = False
        self._begin_group()
        failed = None if done.cancelled() else done.exception()
        for position, each in enumerate(group):
            if each.outcome.done():  # its caller has gone
                continue
            if done.cancelled():
                each.outcome.cancel()
            elif failed is not None:
                each.outcome.set_exception(failed)
            else:
                each.outcome.set_result(done.result()[position])

    async def read(self, work: Callable[[Session], T]) -> T:
        loop = asyncio.get_running_loop()
        result, _ = await loop.run_in_executor(self._readers, transact, self._engine, Mode.READ, work)
        return result

    def close(self) -> None:
        """Waits for what runs, then closes the connections."""
        self._writer.shutdown()
        self._readers.shutdown()
        self._engine.dispose()


class InlineDb:
    """The same in the caller's thread: for tests on a virtual clock."""

    def __init__(self, engine: Engine, bus: Bus) -> None:
        self._engine = engine
        self._bus = bus
        self._together = Together(self.run)

    async def run(self, work: Callable[[Session], T]) -> T:
        result, wrote_events = transact(self._engine, Mode.WRITE, work)
        if wrote_events:
            await self._bus.publish(topics.EVENTS)
        return result

    async def together(self, work: Many[A, R], item: A) -> R | None:
        return await self._together.do(work, item)

    async def read(self, work: Callable[[Session], T]) -> T:
        return transact(self._engine, Mode.READ, work)[0]

    def close(self) -> None:
        """Closes the connections."""
        self._engine.dispose()
