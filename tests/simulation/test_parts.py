"""What the simulation itself rests on: its loop, its guard, its bridge, its rules, and how it makes failures small."""

from __future__ import annotations

import asyncio
import random
import time
from pathlib import Path

import pytest

from tests.simulation import corpus
from tests.simulation.bridge import aside, blocking
from tests.simulation.guard import ForbiddenCallError, no_way_round_the_ports
from tests.simulation.loop import DeadlockError, VirtualLoop
from tests.simulation.planted import apply_half_a_gang
from tests.simulation.run import Plan, run


def virtually(body, seed: int = 1):
    """The result of a coroutine function on a virtual loop."""
    loop = VirtualLoop(random.Random(seed))
    try:
        return loop.run_until_complete(body()), loop.time()
    finally:
        loop.close()


def test_waiting_takes_virtual_time_and_no_real_time() -> None:
    began_s = time.perf_counter()
    _, ended_s = virtually(lambda: asyncio.sleep(86_000.0))
    assert ended_s == pytest.approx(86_000.0)
    assert time.perf_counter() - began_s < 5.0


def test_the_order_of_what_is_ready_is_drawn_by_the_seed() -> None:
    async def order() -> list[int]:
        seen: list[int] = []

        async def one(number: int) -> None:
            seen.append(number)

        await asyncio.gather(*(one(number) for number in range(8)))
        return seen

    orders = {seed: tuple(virtually(order, seed)[0]) for seed in range(6)}
    assert orders == {seed: tuple(virtually(order, seed)[0]) for seed in range(6)}
    assert len(set(orders.values())) > 1
    assert {tuple(sorted(each)) for each in orders.values()} == {tuple(range(8))}


def test_all_waiting_for_ever_is_told_and_not_waited_for() -> None:
    async def nobody_comes() -> None:
        await asyncio.Event().wait()

    with pytest.raises(DeadlockError):
        virtually(nobody_comes)


def test_a_thread_is_refused() -> None:
    async def in_a_thread() -> None:
        await asyncio.to_thread(time.sleep, 0)

    with pytest.raises(RuntimeError, match="use a port"):
        virtually(in_a_thread)


@pytest.mark.parametrize(
    "deed",
    [
        "time.time()",
        "time.monotonic()",
        "time.sleep(0)",
        "random.random()",
        "uuid.uuid4()",
        "os.urandom(1)",
        "threading.Thread(target=int).start()",
    ],
)
def test_going_round_the_ports_raises(deed: str) -> None:
    module = {"__name__": "service.jobs"}
    program = compile(f"import os, random, threading, time, uuid\n{deed}", "service/jobs.py", "exec")
    with no_way_round_the_ports(), pytest.raises(ForbiddenCallError, match=r"service\.jobs calls"):
        exec(program, module)  # noqa: S102 - as a module of the service would
    exec(program, module)  # noqa: S102


def test_blocking_code_steps_aside_and_is_cancelled_where_it_waits() -> None:
    cleaned: list[str] = []

    def daemon() -> str:
        try:
            aside(asyncio.sleep(5.0))
            return aside(asyncio.sleep(5.0, "done"))
        finally:
            cleaned.append("up")

    async def both() -> str:
        task = asyncio.ensure_future(blocking(daemon))
        await asyncio.sleep(1.0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return await blocking(daemon)

    result, ended_s = virtually(both)
    assert (result, ended_s, cleaned) == ("done", pytest.approx(11.0), ["up", "up"])


def test_a_failure_is_made_small_and_kept_and_read_again(tmp_path: Path) -> None:
    with apply_half_a_gang():
        broken = run(Plan(1, seconds=60.0, agents=6, faults=frozenset({"drop", "clock-step"})))
        assert broken.violations
        small = corpus.smallest(broken)
        path = corpus.keep(small, tmp_path)
    assert small.violations[0].rule == broken.violations[0].rule
    assert small.plan.faults == frozenset()
    assert small.plan.seconds < 60.0
    assert dict(corpus.kept(tmp_path)) == {path: small.plan}
