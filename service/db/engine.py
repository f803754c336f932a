"""Engines for SQLite and PostgreSQL: what a transaction means on each.

A *write* sees and keeps a serial order: SQLite by BEGIN IMMEDIATE (one writer at a time), PostgreSQL by SERIALIZABLE.
A *read* sees one consistent state of everything: SQLite's WAL snapshot, PostgreSQL REPEATABLE READ READ ONLY.
A commit is on disk when it returns (`synchronous=FULL` in SQLite, PostgreSQL's default).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from typing import Any

import psycopg
from pydantic_core import from_json, to_json
from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError
from sqlalchemy.pool import ConnectionPoolEntry, PoolProxiedConnection, StaticPool

from scheduler.errors import InvalidValueError

BUSY_TIMEOUT_S = 10.0
CONNECT_TIMEOUT_S = 5
IDLE_IN_TRANSACTION_S = 10
"""PostgreSQL ends a transaction whose program has fallen silent (paused, or cut off from the network) for so long, and
gives its locks back: nobody waits for a program that may never come back."""
_MODE = "bace_mode"
# The standard library's way is four times as long, and a page of jobs holds thousands of documents.
_JSON: dict[str, Any] = {
    "json_serializer": lambda value: to_json(value).decode(),
    "json_deserializer": from_json,
}


class Mode(StrEnum):
    """What a transaction may do."""

    READ = "read"
    WRITE = "write"


_ISOLATION: Mapping[Mode, dict[str, Any]] = {
    Mode.READ: {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True},
    Mode.WRITE: {"isolation_level": "SERIALIZABLE", "postgresql_readonly": False},
}
"""Execution options of PostgreSQL."""


def make_engine(url: str, connections: int = 8) -> Engine:
    """An engine for `url` (sqlite or postgresql+psycopg). Raises InvalidValueError for any other."""
    try:
        backend = make_url(url).get_backend_name()
    except ArgumentError:
        backend = "unreadable"
    if backend == "sqlite":
        return _sqlite(url, connections)
    if backend == "postgresql":
        return _postgresql(url, connections)
    raise InvalidValueError(
        "BACE_DATABASE_URL", backend, "a URL that starts with sqlite:/// or postgresql+psycopg://"
    )


@contextmanager
def begun(engine: Engine, mode: Mode) -> Iterator[Connection]:
    """A connection in a transaction of that mode; what is not committed is rolled back."""
    with engine.connect() as connection:
        if engine.dialect.name == "sqlite":
            connection.info[_MODE] = mode
        else:
            connection.execution_options(**_ISOLATION[mode])
        connection.begin()
        yield connection


def _postgresql(url: str, connections: int) -> Engine:
    engine = create_engine(
        url,
        **_JSON,
        pool_size=connections,
        max_overflow=0,
        pool_pre_ping=True,
        connect_args={"connect_timeout": CONNECT_TIMEOUT_S},
    )
    event.listen(engine, "connect", _prepare_postgresql)
    return engine


def _prepare_postgresql(connection: psycopg.Connection[Any], _entry: ConnectionPoolEntry) -> None:
    connection.execute(f"SET idle_in_transaction_session_timeout = '{IDLE_IN_TRANSACTION_S}s'")
    connection.commit()


def _sqlite(url: str, connections: int) -> Engine:
    arguments: dict[str, Any] = {
        **_JSON,
        "connect_args": {"check_same_thread": False, "timeout": BUSY_TIMEOUT_S},
    }
    if make_url(url).database in (None, "", ":memory:"):
        arguments["poolclass"] = StaticPool
    else:
        arguments |= {"pool_size": connections, "max_overflow": 0}
    engine = create_engine(url, **arguments)
    event.listen(engine, "connect", _prepare_sqlite)
    # In the dialect: an event of the engine's would be looked for before and after every statement, too.
    engine.dialect.do_begin = _begin_sqlite  # type: ignore[method-assign]
    return engine


def _prepare_sqlite(connection: sqlite3.Connection, _entry: ConnectionPoolEntry) -> None:
    # The driver's own BEGIN comes too late for a snapshot and never takes the write lock: we say BEGIN ourselves.
    connection.isolation_level = None
    cursor = connection.cursor()
    cursor.execute("PRAGMA journal_mode=WAL")
    cursor.execute("PRAGMA synchronous=FULL")
    cursor.execute("PRAGMA foreign_keys=ON")
    cursor.close()


def _begin_sqlite(dbapi_connection: PoolProxiedConnection) -> None:
    mode = dbapi_connection.info.pop(_MODE, Mode.WRITE)
    cursor = dbapi_connection.cursor()
    cursor.execute("BEGIN" if mode is Mode.READ else "BEGIN IMMEDIATE")
    cursor.close()
