"""A slow network between the ranks of a test: messages are handed to gloo later than they were sent."""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections.abc import Callable

from torch import Tensor
from torch.distributed import ProcessGroup, Work


class Taken:
    """A send that the network has taken: for its sender it is done."""

    def wait(self) -> bool:
        return True


class Postman:
    """Hands sends over when their time has come, whatever the order in which they were posted."""

    def __init__(self, delay_s: Callable[[], float]) -> None:
        self._delay_s = delay_s
        self._number = itertools.count()
        self._due: list[tuple[float, int, Callable[[], object]]] = []
        self._changed = threading.Condition()
        threading.Thread(target=self._deliver, name="postman", daemon=True).start()

    def post(self, send: Callable[[], object]) -> Taken:
        """Call `send` after the delay."""
        with self._changed:
            heapq.heappush(self._due, (time.monotonic() + self._delay_s(), next(self._number), send))
            self._changed.notify()
        return Taken()

    def _deliver(self) -> None:
        under_way = []
        while True:
            with self._changed:
                while not self._due or self._due[0][0] > time.monotonic():
                    self._changed.wait(self._due[0][0] - time.monotonic() if self._due else None)
                _, _, send = heapq.heappop(self._due)
            under_way.append(send())  # gloo reads the tensor for as long as the work lives


class DelayedGroup:
    """A process group whose sends go through a postman."""

    def __init__(self, group: ProcessGroup, postman: Postman) -> None:
        self._group, self._postman = group, postman

    def send(self, tensors: list[Tensor], rank: int, tag: int) -> Taken:
        return self._postman.post(lambda: self._group.send(tensors, rank, tag))

    def recv(self, tensors: list[Tensor], rank: int, tag: int) -> Work:
        return self._group.recv(tensors, rank, tag)
