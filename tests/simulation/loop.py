"""An asyncio loop whose time jumps to the next timer, and whose order among ready callbacks is drawn by a seed."""

from __future__ import annotations

import asyncio
import random
import selectors
from collections.abc import Callable, Coroutine
from typing import Any


class DeadlockError(RuntimeError):
    """Everybody waits, and no timer is set: nothing can ever happen again."""


class VirtualLoop(asyncio.SelectorEventLoop):
    """Time begins at 0 s, passes only while all wait, and costs nothing. No thread ever runs for it."""

    def __init__(self, order: random.Random) -> None:
        self._now_s = 0.0
        self._order = order
        self._tasks_made = 0
        self.iterations = 0
        super().__init__(_Jump(self))
        self.set_task_factory(_numbered)

    def time(self) -> float:
        return self._now_s

    def jump(self, seconds: float | None) -> None:
        """Called once an iteration, with the time until the next timer."""
        if seconds is None:
            raise DeadlockError("all tasks wait for each other")
        self._now_s += seconds
        self.iterations += 1
        ready = self._ready  # type: ignore[attr-defined]  # the loop's own queue
        if len(ready) > 1:
            shuffled = list(ready)
            self._order.shuffle(shuffled)
            ready.clear()
            ready.extend(shuffled)

    def next_task_number(self) -> int:
        self._tasks_made += 1
        return self._tasks_made

    def run_in_executor(self, executor: Any, function: Callable[..., Any], *arguments: Any) -> Any:
        raise RuntimeError(f"{function!r} would run on a thread: use a port of service/ports.py")


class NumberedTask(asyncio.Task[Any]):
    """Its hash is its number, not its address: sets of tasks have one order in every process."""

    def __init__(self, coroutine: Coroutine[Any, Any, Any], *, loop: VirtualLoop, **more: Any) -> None:
        self._number = loop.next_task_number()
        super().__init__(coroutine, loop=loop, **more)

    def __hash__(self) -> int:
        return self._number


def _numbered(loop: Any, coroutine: Any, **more: Any) -> NumberedTask:
    return NumberedTask(coroutine, loop=loop, **more)


class _Jump(selectors.BaseSelector):
    """A selector of nothing: waiting for a time means being there."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self._map: dict[Any, selectors.SelectorKey] = {}

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        key = selectors.SelectorKey(fileobj, fileobj, events, data)
        self._map[fileobj] = key
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._map.pop(fileobj)

    def select(self, timeout: float | None = None) -> list[Any]:
        self._loop.jump(timeout)
        return []

    def get_map(self) -> Any:
        return self._map
