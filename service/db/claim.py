"""One server for each SQLite file: a second would believe itself the leader, and wait for the lock of the first."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import Engine

from service.errors import ConflictError

SUFFIX = ".server"


@contextmanager
def sole_server(engine: Engine) -> Iterator[None]:
    """While it lasts no other process serves the file. Raises ConflictError where one does; nothing on PostgreSQL.

    The system gives the claim back however the process ends.
    """
    path = engine.url.database
    if engine.dialect.name != "sqlite" or path in (None, "", ":memory:"):
        yield
        return
    lock = Path(f"{path}{SUFFIX}")
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip()
            raise ConflictError(
                f"BACE_DATABASE_URL: the process {holder} serves {path} already: stop it, or let several servers "
                "share a PostgreSQL database"
            ) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode("ascii"), 0)
        yield
    finally:
        os.close(descriptor)
