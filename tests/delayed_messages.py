"""A slow network between the ranks of a test: messages are handed to gloo later than they were sent."""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.distributed import ProcessGroup, Work


class DelayedWork:
    """A send that has not yet been handed over, or has."""

    def __init__(self) -> None:
        self._handed_over = threading.Event()
        self._work: Work | None = None

    def begin(self, work: Work) -> None:
        self._work = work
        self._handed_over.set()

    def wait(self) -> bool:
        self._handed_over.wait()
        assert self._work is not None
        self._work.wait()
        return True


class Postman:
    """Hands sends over when their time has come, whatever the order in which they were posted."""

    def __init__(self, delay_s: Callable[[], float]) -> None:
        self._delay_s = delay_s
        self._number = itertools.count()
        self._due: list[tuple[float, int, Callable[[], Work], DelayedWork]] = []
        self._changed = threading.Condition()
        threading.Thread(target=self._deliver, name="postman", daemon=True).start()

    def post(self, send: Callable[[], Work]) -> DelayedWork:
        """Call `send` after the delay."""
        work = DelayedWork()
        with self._changed:
            heapq.heappush(self._due, (time.monotonic() + self._delay_s(), next(self._number), send, work))
            self._changed.notify()
        return work

    def _deliver(self) -> None:
        while True:
            with self._changed:
                while not self._due or self._due[0][0] > time.monotonic():
                    self._changed.wait(self._due[0][0] - time.monotonic() if self._due else None)
                _, _, send, work = heapq.heappop(self._due)
            work.begin(send())


class DelayedGroup:
    """A process group whose sends go through a postman."""

    def __init__(self, group: ProcessGroup, postman: Postman) -> None:
        self._group, self._postman = group, postman

    def send(self, tensors: list[Tensor], rank: int, tag: int) -> Any:
        return self._postman.post(lambda: self._group.send(tensors, rank, tag))

    def recv(self, tensors: list[Tensor], rank: int, tag: int) -> Work:
        return self._group.recv(tensors, rank, tag)
