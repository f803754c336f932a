"""`ports.Bus` over Redis: wakes the other servers too. While Redis is away this process wakes itself alone.

Nobody who publishes waits for Redis: a message says only that something has changed, so what is not yet sent is a set
of topics, and a task of its own sends it.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets

import structlog
from redis.asyncio import Redis
from redis.exceptions import RedisError

from service.adapters.local_bus import LocalBus, Subscription

CHANNELS = "bace:wake:"
RETRY_S = 1.0
TIMEOUT_S = 2.0
_log = structlog.get_logger("bus")


class RedisBus:
    """A local bus, what it publishes told to all servers, and what the others publish heard by it."""

    def __init__(self, url: str) -> None:
        self._local = LocalBus()
        self._name = secrets.token_bytes(8)  # Redis gives us our own messages back: they were heard already
        self._redis = Redis.from_url(url, socket_connect_timeout=TIMEOUT_S, socket_timeout=TIMEOUT_S)
        # Redis does not keep channels apart by database; whoever shares it under another number is not to be woken.
        database = self._redis.connection_pool.connection_kwargs.get("db", 0)
        self._prefix = f"{CHANNELS}{database}:"
        # The listener waits for messages as long as it takes.
        self._listening = Redis.from_url(url, socket_connect_timeout=TIMEOUT_S)
        self._tasks: list[asyncio.Task[None]] = []
        self._ready = asyncio.Event()
        self._unsent: set[str] = set()
        self._any_unsent = asyncio.Event()
        self._is_away = False

    async def start(self) -> None:
        """Listens from now on. Returns when Redis answers, or at once where it does not: the rest goes on alone."""
        self._tasks = [asyncio.create_task(self._listen()), asyncio.create_task(self._send())]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(TIMEOUT_S):
                await self._ready.wait()

    async def publish(self, topic: str) -> None:
        self._local.wake(topic)
        self._unsent.add(topic)
        self._any_unsent.set()

    def subscribe(self, topic: str) -> Subscription:
        return self._local.subscribe(topic)

    async def wait(self, topic: str, timeout_s: float) -> bool:
        return await self._local.wait(topic, timeout_s)

    async def close(self) -> None:
        """Stops listening and closes the connections."""
        for task in self._tasks:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        await self._redis.aclose()
        await self._listening.aclose()

    async def _send(self) -> None:
        while _goes_on():
            await self._any_unsent.wait()
            self._any_unsent.clear()
            topics, self._unsent = self._unsent, set()
            try:
                for topic in sorted(topics):
                    await self._redis.publish(self._prefix + topic, self._name)
            except (RedisError, OSError) as error:
                self._tell(error)
                self._unsent |= topics
                self._any_unsent.set()
                await asyncio.sleep(RETRY_S)

    async def _listen(self) -> None:
        while _goes_on():
            try:
                await self._hear()
            except (RedisError, OSError) as error:
                self._tell(error)
            await asyncio.sleep(RETRY_S)

    async def _hear(self) -> None:
        async with self._listening.pubsub() as channel:
            await channel.psubscribe(self._prefix + "*")
            async for message in channel.listen():
                if message["type"] == "psubscribe":
                    self._ready.set()
                    self._is_away = False
                    self._local.wake_all()  # whatever was published while nobody listened
                elif message["type"] == "pmessage" and message["data"] != self._name:
                    self._local.wake(message["channel"].decode().removeprefix(self._prefix))

    def _tell(self, error: Exception) -> None:
        """Once for each time that it is away."""
        if not self._is_away:
            self._is_away = True
            _log.warning("redis_unreachable", error=str(error))


def _goes_on() -> bool:
    """Whether nobody has cancelled this task: the client of Redis swallows a cancellation while it connects."""
    task = asyncio.current_task()
    return task is None or not task.cancelling()
