"""Doing together what is asked for at the same time, and nobody suffering from the others."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from service.folding import Folding


class Rounds:
    """Doubles numbers, round by round, when the test says so; refuses 13."""

    def __init__(self) -> None:
        self.seen: list[list[int]] = []
        self.gate = asyncio.Event()

    async def __call__(self, items: Sequence[int]) -> list[int]:
        self.seen.append(list(items))
        await self.gate.wait()
        if 13 in items:
            raise ValueError("13")
        return [2 * item for item in items]


async def _settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_what_comes_in_during_a_round_is_the_next_one_within_its_bound() -> None:
    folding: Folding[int, int] = Folding(3)
    rounds = Rounds()
    calls = [asyncio.ensure_future(folding.do(0, rounds))]
    await _settle()
    calls += [asyncio.ensure_future(folding.do(number, rounds)) for number in range(1, 6)]
    await _settle()
    rounds.gate.set()
    assert await asyncio.gather(*calls) == [0, 2, 4, 6, 8, 10]
    assert rounds.seen == [[0], [1, 2, 3], [4, 5]]


async def test_who_leaves_takes_nobody_along() -> None:
    folding: Folding[int, int] = Folding(10)
    rounds = Rounds()
    first = asyncio.ensure_future(folding.do(1, rounds))
    await _settle()
    others = [asyncio.ensure_future(folding.do(number, rounds)) for number in (2, 3)]
    await _settle()
    first.cancel()
    others[0].cancel()
    rounds.gate.set()
    assert await others[1] == 6
    assert await folding.do(4, rounds) == 8


async def test_a_round_that_fails_fails_for_its_own_alone() -> None:
    folding: Folding[int, int] = Folding(2)
    rounds = Rounds()
    rounds.gate.set()
    answers = await asyncio.gather(
        *(folding.do(number, rounds) for number in (1, 13, 2)), return_exceptions=True
    )
    assert [type(answer) for answer in answers] == [ValueError, ValueError, int]
    with pytest.raises(ValueError, match="13"):
        await folding.do(13, rounds)
