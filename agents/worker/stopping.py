"""Being asked to stop: signals are awaited by a thread of their own.

A Python signal handler runs in the main thread between two bytecodes, so it would not run while that thread
waits in the rendezvous or for a neighbour. Here the stop signals are blocked (every thread started later
inherits that) and a watcher takes them one by one, so that a worker which still waits for its gang ends at
once, and one that trains finishes its step.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from typing import NoReturn

from agents.worker.causes import EXIT_CODES, Cause
from agents.worker.progress import Report

STOP_SIGNALS = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2})


class StopRequest:
    """Whether the worker has been asked to stop, and how long it may wait for its gang."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._requested = threading.Event()
        self._training = threading.Event()
        self._deadline_s: float | None = None

    @property
    def requested(self) -> bool:
        return self._requested.is_set()

    def watch(self) -> None:
        """Start watching. Must be called before any other thread is started."""
        signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
        threading.Thread(target=self._watch, name="stop-signals", daemon=True).start()

    def expect_gang_within(self, timeout_s: float) -> None:
        """Give up, whatever blocks the main thread, unless `gang_complete` is called within `timeout_s`."""
        self._deadline_s = time.monotonic() + timeout_s

    def gang_complete(self) -> None:
        """From now on a stop waits for the end of a step."""
        self._training.set()

    def _watch(self) -> None:
        while not self._training.is_set():
            if signal.sigtimedwait(STOP_SIGNALS, 0.2) is not None:
                self._requested.set()
                if not self._training.is_set():
                    self._end(Cause.STOPPED, "asked to stop before the gang was complete")
            elif self._deadline_s is not None and time.monotonic() > self._deadline_s:
                self._end(
                    Cause.RENDEZVOUS_TIMEOUT, "the ranks of the gang could not connect to one another in time"
                )
        while not self._requested.is_set():
            signal.sigwait(STOP_SIGNALS)
            self._requested.set()

    def _end(self, cause: Cause, detail: str) -> None:
        self._report.end(cause, detail)
        sys.stderr.write(f"{cause}: {detail}\n")
        exit_now(EXIT_CODES[cause])


def exit_now(exit_code: int) -> NoReturn:
    """End the process without waiting for threads that may be blocked on a peer that is gone."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(exit_code)
