"""A worker whose disk takes nothing from rank 1 once it has taken its part of FULL_AFTER checkpoints, as a script."""

from __future__ import annotations

import errno
import itertools
import os
from collections.abc import Iterable

from agents.worker.__main__ import main
from agents.worker.checkpoint.local_store import LocalStore

write = LocalStore.write
heads = itertools.count(1)


def full(self: LocalStore, path: str, chunks: Iterable[bytes | memoryview]) -> None:
    if os.environ["RANK"] == "1" and "head" in path and next(heads) > int(os.environ["FULL_AFTER"]):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    write(self, path, chunks)


LocalStore.write = full  # type: ignore[method-assign]
main()
