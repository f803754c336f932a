"""One database for all replicas: SQLite in memory under the real code of `service/db`, inline, with its faults.

Transactions are serial, as both databases promise for writes; everything else that happens between two of them (other
replicas, pauses, crashes) happens where a replica waits for the database.
"""

from __future__ import annotations

import asyncio
import random
import sqlite3
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, TypeVar

from sqlalchemy.exc import OperationalError

from service import topics
from service.control.errors import DoublePromiseError, FencedError, StalePlanError
from service.db import migrate
from service.db.engine import Mode, make_engine
from service.db.group import Outcome, Unit, transact_group
from service.db.session import Session
from service.db.together import Many, Together
from service.db.transaction import transact
from service.errors import UnavailableError
from service.ports import Bus
from tests.simulation.clocks import Gate
from tests.simulation.trace import Trace

A = TypeVar("A")
R = TypeVar("R")
T = TypeVar("T")

BUSY_ODDS = 0.7
"""Of one attempt, while the database is busy: now and then all attempts of a transaction fail."""
LOST_ANSWER_ODDS = 0.15
UNREACHABLE_AFTER_S = 2.0
PLAN = "plan"
GUARDED = frozenset({"liveness", "reconcile", "bill", "prune", PLAN})
"""The control loops, by the names of their tasks, whose writes only a leader may make."""

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

    def write(self, who: str, units: Sequence[Unit]) -> list[Outcome]:
        """Commits what waits, as one group, unless a fault or the work itself comes between."""
        before = self.driver.total_changes
        faulty = [partial(self._work, unit) for unit in units]
        outcomes = transact_group(self.engine, faulty, pause=_at_once)
        if self.driver.total_changes != before:
            self.commits += 1
            self.after_commit(who)
            if self.loses_answers and self.dice.random() < LOST_ANSWER_ODDS:
                self.trace.fault("answer-lost", who)
                lost = UnavailableError("the connection broke before the database had answered")
                return [Outcome(error=lost) for _ in units]
        return outcomes

    def epoch(self) -> int:
        """Of whoever leads."""
        return int(self.driver.execute("SELECT epoch FROM leader").fetchone()[0])

    def read(self, work: Callable[[Session], T]) -> T:
        return transact(self.engine, Mode.READ, work, pause=_at_once)[0]

    def close(self) -> None:
        self.engine.dispose()

    def _work(self, unit: Unit, session: Session) -> Any:
        if self.is_busy and self.dice.random() < BUSY_ODDS:
            self.trace.fault("database-busy")
            raise OperationalError("BEGIN", {}, sqlite3.OperationalError("database is locked"))
        result = unit(session)
        if self.is_full:
            self.trace.fault("database-full")
            raise OperationalError("COMMIT", {}, sqlite3.OperationalError("database or disk is full"))
        return result


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A unit of work, whom its outcome is for, and the name of the task that asks."""

    unit: Unit
    done: asyncio.Future[tuple[Outcome, int]]
    task: str


class ReplicaDb:
    """`ports.Db` of one life of a replica: writes in groups, as `ThreadPoolDb`; answers nobody once it is over."""

    def __init__(self, database: Database, who: str, gate: Gate, bus: Bus, dice: random.Random) -> None:
        self._database = database
        self._who = who
        self._gate = gate
        self._bus = bus
        self._dice = dice
        self._waiting: list[_Waiting] = []
        self._together = Together(self.run)
        self.epoch_held: Callable[[], float] = float
        """Under which epoch this replica believes to lead."""
        self.stops_with_plan_s = 0.0
        """The process is stopped for so long when its next plan is about to be written."""
        self.is_dead = False
        self.is_cut_off = False

    async def run(self, work: Callable[[Session], T]) -> T:
        await self._gate.through()
        self._check_alive()
        loop = asyncio.get_running_loop()
        done: asyncio.Future[tuple[Outcome, int]] = loop.create_future()
        task = asyncio.current_task()
        self._waiting.append(_Waiting(work, done, "" if task is None else task.get_name()))
        if self.stops_with_plan_s and self._waiting[-1].task == PLAN:
            self._gate.stop_for(self.stops_with_plan_s)
            self.stops_with_plan_s = 0.0
        if len(self._waiting) == 1:
            loop.call_later(self._latency_s(), self._write)
        outcome, commit = await done
        await self._come_back()
        if outcome.error is not None:
            self._tell(outcome.error)
            raise outcome.error
        commit_of_this_task.set(commit)
        if outcome.wrote_events:
            await self._bus.publish(topics.EVENTS)
        result: T = outcome.result
        return result

    async def read(self, work: Callable[[Session], T]) -> T:
        await asyncio.sleep(self._latency_s())
        await self._gate.through()
        self._check_alive()
        if self.is_cut_off:
            await asyncio.sleep(UNREACHABLE_AFTER_S)
            raise _unreachable()
        result = self._database.read(work)
        await self._come_back()
        return result

    async def together(self, work: Many[A, R], item: A) -> R | None:
        return await self._together.do(work, item)

    def close(self) -> None:
        """The connection ends with the process."""

    def _write(self) -> None:
        """What has come in since the group began to wait; a process that is stopped goes on with it later, or never."""
        group, self._waiting = self._waiting, []
        self._gate.when_open(lambda: self._commit(group))

    def _commit(self, group: list[_Waiting]) -> None:
        if self.is_dead or self.is_cut_off:
            outcomes = [Outcome(error=_unreachable()) for _ in group]
        else:
            outcomes = self._database.write(self._who, [waiting.unit for waiting in group])
        for waiting, outcome in zip(group, outcomes, strict=True):
            if (
                outcome.error is None
                and waiting.task in GUARDED
                and self.epoch_held() != self._database.epoch()
            ):
                self._database.trace.violation(
                    "a deposed leader changes nothing",
                    f"{self._who} wrote ({waiting.task}) by epoch {self.epoch_held()}, {self._database.epoch()} leads",
                )
            if not waiting.done.done():
                waiting.done.set_result((outcome, self._database.commits))

    def _tell(self, error: Exception) -> None:
        trace, task = self._database.trace, asyncio.current_task()
        if isinstance(error, FencedError):
            trace.sometimes("a deposed leader was fenced off")
            if task is not None and task.get_name() == PLAN:
                trace.sometimes("a deposed leader was fenced off while it applied a plan")
        elif isinstance(error, StalePlanError):
            trace.sometimes("a plan was stale")
        elif isinstance(error, DoublePromiseError):
            trace.violation("no plan promises twice", str(error))

    def _latency_s(self) -> float:
        return self._dice.uniform(0.0005, 0.004)

    async def _come_back(self) -> None:
        if self._dice.random() < 0.2:
            await asyncio.sleep(self._dice.uniform(0.0005, 0.02))
        await self._gate.through()
        self._check_alive()

    def _check_alive(self) -> None:
        if self.is_dead:
            raise UnavailableError(f"{self._who} is dead")


def _unreachable() -> UnavailableError:
    return UnavailableError("the database cannot be reached; nothing was stored, try again")


def _at_once(attempt: int) -> None:
    """Inline there is nobody to wait for."""
