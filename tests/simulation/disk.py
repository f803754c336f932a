"""The disk of one machine: an agent's journal, lease and identity, which outlive it; full at times, torn at others."""

from __future__ import annotations

import errno
import random
from pathlib import Path

from agents.protocol import NodeIdentity


class PowerCut(BaseException):
    """The process ends here, in the middle of what it does; nothing catches it on its way out."""


class Disk:
    """What is kept of it: the bytes of the journal, and the lease with the boot it belongs to."""

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice
        self.journal = b""
        self.lease: tuple[str, float] | None = None
        self.identity: NodeIdentity | None = None
        self.is_full = False
        self.cut_in_writes: int | None = None
        """The write of the journal, counted from now, in which the process ends; None: none."""
        self.torn = 0

    def open_journal(self, _path: Path) -> JournalBytes:
        """`agents.journal.Storage`."""
        return JournalBytes(self)

    def write(self, data: bytes, before: bytes) -> None:
        """Puts `before + data` in the journal, or as much of `data` as there is room or time for."""
        if self.cut_in_writes is not None:
            self.cut_in_writes -= 1
            if self.cut_in_writes <= 0:
                self.cut_in_writes = None
                written = self._dice.randrange(len(data) + 1)
                self.torn += 0 < written < len(data)
                self.journal = before + data[:written]
                raise PowerCut
        if self.is_full:
            self.journal = before + data[: self._dice.randrange(len(data))]
            raise OSError(errno.ENOSPC, "No space left on device")
        self.journal = before + data


class JournalBytes:
    """The journal's bytes on a disk."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    def size_bytes(self) -> int:
        return len(self._disk.journal)

    def read(self) -> bytes:
        return self._disk.journal

    def append(self, data: bytes) -> None:
        self._disk.write(data, self._disk.journal)

    def truncate(self, size_bytes: int) -> None:
        self._disk.journal = self._disk.journal[:size_bytes]

    def replace(self, data: bytes) -> None:
        if self._disk.is_full:
            raise OSError(errno.ENOSPC, "No space left on device")
        self._disk.journal = data

    def close(self) -> None:
        """Nothing is open."""


class IdentityOnDisk:
    """`agents.identity.IdentityStore`."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    def read(self) -> NodeIdentity | None:
        return self._disk.identity

    def write(self, identity: NodeIdentity) -> None:
        if self._disk.is_full:
            raise OSError(errno.ENOSPC, "No space left on device")
        self._disk.identity = identity
