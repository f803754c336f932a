"""Group commit: units of work that wait at the same time share one transaction, hence one wait for the disk.

A unit is what `transaction.transact` runs alone. In a group each has a savepoint: one that raises takes back its own
writes and no other's. The group is committed whole before anybody is answered, so what was answered is durable; where
it cannot be committed whole, its units are run one after the other, each in a transaction of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError

from service.db.engine import Mode, begun
from service.db.repositories import events
from service.db.session import Session
from service.db.transaction import is_about_the_transaction, transact, wait_before_retry

Unit = Callable[[Session], Any]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a unit: its result, or what it raised; and whether it wrote events."""

    result: Any = None
    error: Exception | None = None
    wrote_events: bool = False


def transact_group(
    engine: Engine, units: Sequence[Unit], pause: Callable[[int], None] = wait_before_retry
) -> list[Outcome]:
    """Runs the units as one transaction; an outcome for each, in their order. `pause` as in `transact`."""
    if len(units) > 1:
        try:
            return _together(engine, units)
        except DBAPIError:
            # Not serialisable, busy, or broken as a whole: nothing of it is stored. Alone each finds out for itself.
            return [_alone(engine, unit, pause) for unit in units]
    return [_alone(engine, unit, pause) for unit in units]


def _together(engine: Engine, units: Sequence[Unit]) -> list[Outcome]:
    with begun(engine, Mode.WRITE) as connection:
        outcomes = [_in_savepoint(connection, unit) for unit in units]
        connection.commit()
        return outcomes


def _in_savepoint(connection: Connection, unit: Unit) -> Outcome:
    savepoint, session = connection.begin_nested(), Session(connection)
    try:
        result = unit(session)
        wrote_events = events.write(session)
        savepoint.commit()
    except Exception as error:
        if isinstance(error, DBAPIError) and is_about_the_transaction(error):
            raise
        savepoint.rollback()
        return Outcome(error=error)
    return Outcome(result, wrote_events=wrote_events)


def _alone(engine: Engine, unit: Unit, pause: Callable[[int], None]) -> Outcome:
    try:
        result, wrote_events = transact(engine, Mode.WRITE, unit, pause)
    except Exception as error:  # noqa: BLE001 - as above
        return Outcome(error=error)
    return Outcome(result, wrote_events=wrote_events)
