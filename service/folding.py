"""Doing together what is asked for at the same time: what comes in while a round is under way is the next round."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

A = TypeVar("A")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class _Asked(Generic[A, R]):
    item: A
    answer: asyncio.Future[R]


class Folding(Generic[A, R]):
    """One round at a time, of at most `most` items. Nobody waits for a round to fill."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._asked: deque[_Asked[A, R]] = deque()
        self._rounds: asyncio.Task[None] | None = None

    async def do(self, item: A, together: Callable[[Sequence[A]], Awaitable[Sequence[R]]]) -> R:
        """The answer for `item`. `together` gives one for each of its items, in their order; what it raises, all of
        its round raise."""
        asked: _Asked[A, R] = _Asked(item, asyncio.get_running_loop().create_future())
        self._asked.append(asked)
        if self._rounds is None or self._rounds.done():
            # A task of its own: whoever asked first may leave while others still wait.
            self._rounds = asyncio.ensure_future(self._run(together))
        return await asked.answer

    async def _run(self, together: Callable[[Sequence[A]], Awaitable[Sequence[R]]]) -> None:
        while self._asked:
            taken = [self._asked.popleft() for _ in range(min(self._most, len(self._asked)))]
            try:
                answers = await together([each.item for each in taken])
            except asyncio.CancelledError:
                for each in taken:
                    each.answer.cancel()
                raise
            except Exception as error:  # noqa: BLE001 - whatever it is, it belongs to those who asked
                for each in taken:
                    if not each.answer.done():
                        each.answer.set_exception(error)
                continue
            for each, answer in zip(taken, answers, strict=True):
                if not each.answer.done():
                    each.answer.set_result(answer)
