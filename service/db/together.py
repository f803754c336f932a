"""Units of work of one kind that come in at the same time, done by one call: rows go to the database by the hundred,
where one by one each would be some statements of its own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from sqlalchemy.exc import DBAPIError

from service.db.session import Session
from service.folding import Folding

A = TypeVar("A")
R = TypeVar("R")
Many = Callable[[Session, Sequence[A]], Sequence[R | None]]
Run = Callable[[Callable[[Session], Any]], Awaitable[Any]]

MAX_TOGETHER = 200
"""Few enough for none to wait long for the others."""


class Together:
    """The `together` of a `ports.Db` whose `run` is given."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._kinds: dict[Any, Folding[Any, Any]] = {}

    async def do(self, work: Many[A, R], item: A) -> R | None:
        """As `ports.Db.together`; kinds are told apart by their function."""
        folding = self._kinds.get(work)
        if folding is None:
            folding = self._kinds[work] = Folding(MAX_TOGETHER)
        answer: R | None = await folding.do(item, partial(self._round, work))
        return answer

    async def _round(self, work: Many[A, R], items: Sequence[A]) -> Sequence[R | None]:
        try:
            answers: Sequence[R | None] = await self._run(lambda session: work(session, items))
        except DBAPIError:
            # One of them cannot be stored, or somebody else has been first: alone each finds out for itself.
            return [None] * len(items)
        return answers
