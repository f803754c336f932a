"""The unit of work: one function, one transaction, tried again where it could not be put in a serial order."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

import psycopg
from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError

from service.db.engine import Mode, begun
from service.db.repositories import events
from service.db.session import Session
from service.errors import UnavailableError

T = TypeVar("T")

MAX_ATTEMPTS = 12
FIRST_PAUSE_S = 0.002
MAX_PAUSE_S = 0.25
RETRIABLE_STATES = frozenset({"40001", "40P01", "25P03"})
"""serialization_failure, deadlock_detected, idle_in_transaction_session_timeout: nothing has been committed."""
CONNECTION_STATES = ("08", "53", "57P")  # connection lost, out of resources, shut down


def wait_before_retry(attempt: int) -> None:
    """Blocks the thread for longer with every attempt (from 0), each a little differently."""
    pause_s = min(MAX_PAUSE_S, FIRST_PAUSE_S * 2**attempt)
    # Only a thread of a pool may block: whoever has none hands in a pause of its own.
    time.sleep(pause_s * random.uniform(0.5, 1.0))  # noqa: S311, TID251 - spreads retries, hides nothing


def transact(
    engine: Engine,
    mode: Mode,
    work: Callable[[Session], T],
    pause: Callable[[int], None] = wait_before_retry,
) -> tuple[T, bool]:
    """Runs `work` in one transaction; committed whole, or not at all. Also tells whether it wrote events.

    Tried again, within a bound, where the database could not put it in a serial order or is busy; `pause` is called
    before each retry. Raises UnavailableError where the bound is reached or the database cannot be reached.
    """
    for attempt in range(MAX_ATTEMPTS):
        try:
            return _once(engine, mode, work)
        except DBAPIError as error:
            if _unreachable(error):
                raise UnavailableError(
                    "the database cannot be reached; nothing was stored, try again"
                ) from error
            if _full(error):
                raise UnavailableError(
                    "the database's disk is full; nothing was stored: make room, then try again"
                ) from error
            if not _retriable(error):
                raise
        pause(attempt)
    raise UnavailableError(
        f"the database was too busy for {MAX_ATTEMPTS} attempts; nothing was stored, try again"
    )


def is_about_the_transaction(error: DBAPIError) -> bool:
    """Whether it says something of the transaction as a whole, not of the statement that met it."""
    return _retriable(error) or _unreachable(error) or _full(error)


def _once(engine: Engine, mode: Mode, work: Callable[[Session], T]) -> tuple[T, bool]:
    with begun(engine, mode) as connection:
        session = Session(connection)
        result = work(session)
        wrote_events = events.write(session)
        connection.commit()
        return result, wrote_events


def _retriable(error: DBAPIError) -> bool:
    if isinstance(error.orig, psycopg.Error):
        return error.orig.sqlstate in RETRIABLE_STATES
    return "database is locked" in str(error.orig) or "database table is locked" in str(error.orig)


def _unreachable(error: DBAPIError) -> bool:
    if isinstance(error.orig, psycopg.Error):
        state = error.orig.sqlstate
        # Without a state the server has not answered at all.
        return isinstance(error.orig, psycopg.OperationalError) and (
            state is None or state.startswith(CONNECTION_STATES)
        )
    return "unable to open database" in str(error.orig)


def _full(error: DBAPIError) -> bool:
    # PostgreSQL says so with a state of "out of resources", which counts as unreachable.
    return "database or disk is full" in str(error.orig)
