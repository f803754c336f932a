"""`ports.Bus` over a Redis that may be gone: a replica always wakes itself, the others only while Redis is there."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator

from service.adapters.local_bus import LocalBus

DELAY_S = 0.003


class Redis:
    """Between the replicas. A message that is not heard is lost."""

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice
        self.is_gone = False
        self._buses: list[ReplicaBus] = []

    def join(self) -> ReplicaBus:
        """The bus of a replica that has just started."""
        bus = ReplicaBus(self)
        self._buses.append(bus)
        return bus

    def leave(self, bus: ReplicaBus) -> None:
        self._buses.remove(bus)

    def tell_others(self, sender: ReplicaBus, topic: str) -> None:
        if self.is_gone:
            return
        for bus in self._buses:
            if bus is not sender:
                delay_s = self._dice.uniform(0.5, 2.0) * DELAY_S
                asyncio.get_running_loop().call_later(delay_s, bus.local.wake, topic)


class ReplicaBus:
    """As `RedisBus` without the network."""

    def __init__(self, redis: Redis) -> None:
        self.local = LocalBus()
        self._redis = redis

    async def publish(self, topic: str) -> None:
        self.local.wake(topic)
        self._redis.tell_others(self, topic)

    def subscribe(self, topic: str) -> AsyncIterator[None]:
        return self.local.subscribe(topic)

    async def wait(self, topic: str, timeout_s: float) -> bool:
        return await self.local.wait(topic, timeout_s)
