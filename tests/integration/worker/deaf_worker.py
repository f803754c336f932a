"""A worker that nobody tells of lost peers while it waits for its messages to leave, as a script."""

from __future__ import annotations

import threading

from agents.worker.__main__ import main
from agents.worker.executor.messages import Messages


def deaf(self: Messages) -> None:
    threading.Event().wait()


Messages.end = deaf  # type: ignore[method-assign]
main()
