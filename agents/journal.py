"""The agent's memory: an append-only file of records, each on disk before what it says is acted upon.

One record a line: CRC-32 of the text in hex, a blank, the text (JSON). A record that a crash has torn can only
be the last one; it is cut off when the file is opened. Anything unreadable before a readable record is damage,
and refused, because the agent would otherwise start again what it has already started.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Protocol

from agents.errors import JournalError

Record = dict[str, Any]


class Storage(Protocol):
    """The bytes of a journal. What a method has done is on disk when it returns; OSError where it could not be."""

    def size_bytes(self) -> int: ...

    def read(self) -> bytes: ...

    def append(self, data: bytes) -> None:
        """After an OSError any part of the data may be there."""
        ...

    def truncate(self, size_bytes: int) -> None: ...

    def replace(self, data: bytes) -> None:
        """At once or not at all."""
        ...

    def close(self) -> None: ...


class JournalFile:
    """`Storage` in a file, which is made if it is not there. Links are not followed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = _open_append(path)

    def size_bytes(self) -> int:
        return os.fstat(self._file).st_size

    def read(self) -> bytes:
        return self._path.read_bytes()

    def append(self, data: bytes) -> None:
        _write_all(self._file, data)
        os.fsync(self._file)

    def truncate(self, size_bytes: int) -> None:
        os.ftruncate(self._file, size_bytes)

    def replace(self, data: bytes) -> None:
        draft = self._path.with_name(f"{self._path.name}.new")
        draft.unlink(missing_ok=True)
        file = _open_append(draft)
        _write_all(file, data)
        os.fsync(file)
        os.replace(draft, self._path)
        _sync_folder(self._path.parent)
        os.close(self._file)
        self._file = file

    def close(self) -> None:
        os.close(self._file)


class Journal:
    """An open journal. `append` returns when the records are on disk."""

    def __init__(self, path: Path, open_storage: Callable[[Path], Storage] = JournalFile) -> None:
        self._path = path
        self._storage = open_storage(path)
        self.size_bytes = self._storage.size_bytes()

    def read(self) -> list[Record]:
        """All records, oldest first; cuts off a torn last one."""
        data = self._storage.read()
        records: list[Record] = []
        good = 0
        for line in data.splitlines(keepends=True):
            record = _decode(line)
            if record is None:
                break
            records.append(record)
            good += len(line)
        if any(_decode(line) is not None for line in data[good:].splitlines(keepends=True)):
            raise JournalError(
                f"{self._path} is damaged at byte {good}: the records before it are whole and later ones exist. "
                "Stop what runs under this agent and move the work folder away to begin anew"
            )
        self._truncate(good)
        return records

    def append(self, records: Iterable[Record]) -> None:
        """All of the records, or JournalError and none of them."""
        data = b"".join(map(_encode, records))
        try:
            self._storage.append(data)
        except OSError as error:
            self._truncate(self.size_bytes)
            raise JournalError(f"{self._path}: {error}") from error
        self.size_bytes += len(data)

    def replace(self, records: Iterable[Record]) -> None:
        """Compaction: the records take the place of all that is in the journal, at once or not at all."""
        try:
            self._storage.replace(b"".join(map(_encode, records)))
        except OSError as error:
            raise JournalError(f"{self._path}: {error}") from error
        self.size_bytes = self._storage.size_bytes()

    def close(self) -> None:
        """Nothing is left to write: every append is on disk already."""
        self._storage.close()

    def _truncate(self, size_bytes: int) -> None:
        self._storage.truncate(size_bytes)
        self.size_bytes = size_bytes


def _encode(record: Record) -> bytes:
    text = json.dumps(record, separators=(",", ":")).encode()
    return b"%08x %s\n" % (zlib.crc32(text), text)


def _decode(line: bytes) -> Record | None:
    """None where the line is not whole."""
    checksum, _, text = line.rstrip(b"\n").partition(b" ")
    if not line.endswith(b"\n") or checksum != b"%08x" % zlib.crc32(text):
        return None
    record = json.loads(text)
    return record if isinstance(record, dict) else None


def _open_append(path: Path) -> int:
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    file = os.open(path, flags, 0o600)
    _sync_folder(path.parent)
    return file


def _sync_folder(path: Path) -> None:
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    os.fsync(folder)
    os.close(folder)


def _write_all(file: int, data: bytes) -> None:
    while data:
        data = data[os.write(file, data) :]
