"""`ports.Bus`: the in-process bus and the Redis bus keep the same promises."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator

import pytest

from service.adapters.local_bus import LocalBus
from service.adapters.redis_bus import TIMEOUT_S, RedisBus

Bus = LocalBus | RedisBus
PATIENCE_S = 20.0


async def hears(subscription: AsyncIterator[None], within_s: float = PATIENCE_S) -> bool:
    """Whether a message comes in time."""
    try:
        async with asyncio.timeout(within_s):
            await anext(subscription)
    except TimeoutError:
        return False
    return True


@pytest.fixture(params=["local", pytest.param("redis", marks=pytest.mark.redis)])
async def bus(request: pytest.FixtureRequest) -> AsyncIterator[Bus]:
    bus: Bus = LocalBus() if request.param == "local" else RedisBus(request.getfixturevalue("redis_url"))
    await bus.start()
    yield bus
    await bus.close()


async def test_a_subscription_hears_what_is_published_after_it_was_made(bus: Bus) -> None:
    subscription = bus.subscribe("planning")
    await bus.publish("planning")
    assert await hears(subscription)


async def test_a_subscription_hears_nothing_of_other_topics_or_of_before(bus: Bus) -> None:
    await bus.publish("planning")
    subscription = bus.subscribe("planning")
    await bus.publish("events")
    assert not await hears(subscription, 0.2)


async def test_everybody_who_waits_is_woken(bus: Bus) -> None:
    waiting = [asyncio.ensure_future(bus.wait("planning", PATIENCE_S)) for _ in range(3)]
    await asyncio.sleep(0)  # let them begin to wait
    await bus.publish("planning")
    assert await asyncio.gather(*waiting) == [True, True, True]


async def test_waiting_ends_with_its_time(bus: Bus) -> None:
    assert await bus.wait("planning", 0.05) is False


async def test_many_messages_fold_into_at_least_one(bus: Bus) -> None:
    subscription = bus.subscribe("planning")
    for _ in range(50):
        await bus.publish("planning")
    assert await hears(subscription)


@pytest.mark.redis
async def test_redis_wakes_another_server(redis_url: str) -> None:
    here, there = RedisBus(redis_url), RedisBus(redis_url)
    await here.start()
    await there.start()
    heard = there.subscribe("planning")
    await here.publish("planning")
    assert await hears(heard)
    await here.close()
    await there.close()


async def test_without_redis_a_server_still_wakes_itself() -> None:
    bus = RedisBus("redis://127.0.0.1:1/0")
    heard = bus.subscribe("planning")
    await bus.publish("planning")
    assert await hears(heard)
    await bus.close()


async def test_nobody_who_publishes_waits_for_a_redis_that_does_not_answer() -> None:
    silent = socket.create_server(("127.0.0.1", 0))  # the system accepts, and nobody ever answers
    bus = RedisBus(f"redis://127.0.0.1:{silent.getsockname()[1]}/0")
    await bus.start()
    heard = bus.subscribe("planning")
    begin_s = asyncio.get_running_loop().time()
    for _ in range(100):
        await bus.publish("planning")
        await anext(heard)
    assert asyncio.get_running_loop().time() - begin_s < TIMEOUT_S
    await bus.close()
    silent.close()


@pytest.mark.redis
async def test_servers_with_another_database_of_the_same_redis_are_not_woken(redis_url: str) -> None:
    server, _, number = redis_url.rpartition("/")
    here, there, elsewhere = (
        RedisBus(url) for url in (redis_url, redis_url, f"{server}/{(int(number) + 5) % 16}")
    )
    for bus in (here, there, elsewhere):
        await bus.start()
    heard, unheard = there.subscribe("planning"), elsewhere.subscribe("planning")
    await here.publish("planning")
    assert await hears(heard)
    assert not await hears(unheard, 0.2)
    for bus in (here, there, elsewhere):
        await bus.close()


@pytest.mark.redis
async def test_who_hears_redis_again_is_woken_for_whatever_was_missed(redis_url: str) -> None:
    bus = RedisBus(redis_url)
    heard = bus.subscribe("events")
    await bus.start()  # from here on it listens: before that, others may have published
    assert await hears(heard)
    await bus.close()
