"""What torch's errors mean: torch tells most of them by text alone."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.distributed as dist

from agents.worker.causes import Cause, WorkerEndError

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
        if isinstance(cause, (torch.OutOfMemoryError, MemoryError)) or any(sign in text for sign in _MEMORY):
            return WorkerEndError(Cause.OUT_OF_MEMORY, f"the stage does not fit: {_shown(cause)}")
        if isinstance(cause, dist.DistError) or any(sign in text for sign in _PEER):
            return WorkerEndError(Cause.PEER_LOST, f"another rank is gone or out of reach: {_shown(cause)}")
    return None


def _chain(error: BaseException) -> Iterator[BaseException]:
    link: BaseException | None = error
    while link is not None:
        yield link
        link = link.__cause__


def _shown(error: BaseException) -> str:
    text = str(error).strip()
    return text.partition("\n")[0][:500] if text else type(error).__name__
