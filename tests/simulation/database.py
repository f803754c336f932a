"""One database for all replicas: SQLite in memory under the real code of `service/db`, inline, with its faults.

Transactions are serial, as both databases promise for writes; everything else that happens between two of them (other
replicas, pauses, crashes) happens where a replica waits for the database.
"""

from __future__ import annotations

import asyncio
import random
import sqlite3
from collections.abc import Callable
from contextvars import ContextVar
from functools import cache
from typing import TypeVar

from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from service import topics
from service.db import migrate
from service.db.engine import Mode, make_engine
from service.db.transaction import transact
from service.errors import UnavailableError
from service.ports import Bus
from tests.simulation.clocks import Gate
from tests.simulation.trace import Trace

T = TypeVar("T")

BUSY_ODDS = 0.7
"""Of one attempt, while the database is busy: now and then all attempts of a transaction fail."""
LOST_ANSWER_ODDS = 0.15
UNREACHABLE_AFTER_S = 2.0

commit_of_this_task: ContextVar[int] = ContextVar("commit_of_this_task", default=0)
"""Number of the newest commit that the running task has made."""


@cache
def _empty() -> bytes:
    """A database as the migrations leave it."""
    engine = make_engine("sqlite://")
    migrate.upgrade(engine)
    with engine.connect() as connection:
        driver = connection.connection.driver_connection
        assert isinstance(driver, sqlite3.Connection)
        image = driver.serialize()
    engine.dispose()
    return image


class Database:
    """The server process of the database: it never dies, but is busy, full or cut off at times."""

    def __init__(self, trace: Trace, dice: random.Random) -> None:
        self.trace = trace
        self.dice = dice
        self.engine = make_engine("sqlite://")
        with self.engine.connect() as connection:
            driver = connection.connection.driver_connection
        assert isinstance(driver, sqlite3.Connection)
        self.driver = driver
        driver.deserialize(_empty())
        driver.execute("PRAGMA foreign_keys=ON")
        self.after_commit: Callable[[str], None] = lambda who: None
        self.commits = 0
        self.is_busy = False
        self.is_full = False
        self.loses_answers = False

    def write(self, who: str, work: Callable[[Session], T]) -> tuple[T, bool]:
        """Commits, unless a fault or the work comes between. Raises UnavailableError where the answer is lost."""
        before = self.driver.total_changes
        answer = transact(self.engine, Mode.WRITE, lambda session: self._work(session, work), pause=_at_once)
        if self.driver.total_changes == before:
            return answer
        self.commits += 1
        commit_of_this_task.set(self.commits)
        self.after_commit(who)
        if self.loses_answers and self.dice.random() < LOST_ANSWER_ODDS:
            self.trace.fault("answer-lost", who)
            raise UnavailableError("the connection broke before the database had answered")
        return answer

    def read(self, work: Callable[[Session], T]) -> T:
        return transact(self.engine, Mode.READ, work, pause=_at_once)[0]

    def close(self) -> None:
        self.engine.dispose()

    def _work(self, session: Session, work: Callable[[Session], T]) -> T:
        if self.is_busy and self.dice.random() < BUSY_ODDS:
            self.trace.fault("database-busy")
            raise OperationalError("BEGIN", {}, sqlite3.OperationalError("database is locked"))
        result = work(session)
        if self.is_full:
            self.trace.fault("database-full")
            raise OperationalError("COMMIT", {}, sqlite3.OperationalError("database or disk is full"))
        return result


class ReplicaDb:
    """`ports.Db` of one life of a replica. It answers nobody any more once that life is over."""

    def __init__(self, database: Database, who: str, gate: Gate, bus: Bus, dice: random.Random) -> None:
        self._database = database
        self._who = who
        self._gate = gate
        self._bus = bus
        self._dice = dice
        self.is_dead = False
        self.is_cut_off = False

    async def run(self, work: Callable[[Session], T]) -> T:
        await self._reach()
        result, wrote_events = self._database.write(self._who, work)
        if wrote_events:
            await self._bus.publish(topics.EVENTS)
        await self._come_back()
        return result

    async def read(self, work: Callable[[Session], T]) -> T:
        await self._reach()
        result = self._database.read(work)
        await self._come_back()
        return result

    def close(self) -> None:
        """The connection ends with the process."""

    async def _reach(self) -> None:
        await asyncio.sleep(self._dice.uniform(0.0005, 0.004))
        await self._gate.through()
        if self.is_dead:
            raise UnavailableError(f"{self._who} is dead")
        if self.is_cut_off:
            await asyncio.sleep(UNREACHABLE_AFTER_S)
            raise UnavailableError("the database cannot be reached; nothing was stored, try again")

    async def _come_back(self) -> None:
        if self._dice.random() < 0.2:
            await asyncio.sleep(self._dice.uniform(0.0005, 0.02))
        await self._gate.through()
        if self.is_dead:
            raise UnavailableError(f"{self._who} is dead")


def _at_once(attempt: int) -> None:
    """Inline there is nobody to wait for."""
