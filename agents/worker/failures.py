"""What errors of training mean: torch tells most of its own by text alone."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist

from agents.worker.causes import Cause, WorkerEndError
from agents.worker.executor.rules.drift import DriftError
from agents.worker.executor.rules.rollback import NotFiniteError

_MEMORY = ("out of memory", "can't allocate memory", "not enough memory", "defaultcpuallocator")
_PEER = (
    "gloo",
    "nccl",
    "connection closed by peer",
    "connection reset by peer",
    "broken pipe",
    "timed out",
    "timeout",
    "pair closure",  # what gloo says after it has closed a connection that timed out
)


def known_end(error: BaseException) -> WorkerEndError | None:
    """The end that `error`, or an error that it came from, stands for; None if it is a fault of the program."""
    for cause in _chain(error):
        text = str(cause).lower()
        if isinstance(cause, DriftError):
            return WorkerEndError(Cause.DRIFTED, str(cause))
        if isinstance(cause, NotFiniteError):
            return WorkerEndError(Cause.DIVERGED, str(cause))
        if _is_of_memory(cause):
            return WorkerEndError(Cause.OUT_OF_MEMORY, f"the stage does not fit: {_shown(cause)}")
        if isinstance(cause, dist.DistError) or any(sign in text for sign in _PEER):
            return WorkerEndError(Cause.PEER_LOST, f"another rank is gone or out of reach: {_shown(cause)}")
    return None


@contextmanager
def memory_accounted(account: Callable[[], str]) -> Iterator[None]:
    """Where memory runs out in the body, tells what `account` says of it.

    Raises WorkerEndError `out-of-memory`; what else the body raises goes on.
    """
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        out = next((cause for cause in _chain(error) if _is_of_memory(cause)), None)
        if out is None:
            raise
        traceback.print_exc()
        raise WorkerEndError(Cause.OUT_OF_MEMORY, f"{account()}; torch says: {_shown(out)}") from error


def _is_of_memory(error: BaseException) -> bool:
    text = str(error).lower()
    return isinstance(error, (torch.OutOfMemoryError, MemoryError)) or any(sign in text for sign in _MEMORY)


def _chain(error: BaseException) -> Iterator[BaseException]:
    link: BaseException | None = error
    while link is not None:
        yield link
        link = link.__cause__


def _shown(error: BaseException) -> str:
    text = str(error).strip()
    return text.partition("\n")[0][:500] if text else type(error).__name__
