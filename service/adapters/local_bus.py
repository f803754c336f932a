"""`ports.Bus` inside one process."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from weakref import WeakKeyDictionary


class Subscription(AsyncIterator[None]):
    """Wake-ups since it was made; those that nobody has waited for fold into one."""

    def __init__(self) -> None:
        self._woken = asyncio.Event()

    def wake(self) -> None:
        """To be called from the event loop's thread."""
        self._woken.set()

    async def __anext__(self) -> None:
        await self._woken.wait()
        self._woken.clear()


class LocalBus:
    """Wakes the subscriptions of this process. A subscription that nobody holds any more is forgotten."""

    def __init__(self) -> None:
        # A mapping for its order: who came first is woken first, in every process.
        self._subscriptions: defaultdict[str, WeakKeyDictionary[Subscription, None]] = defaultdict(
            WeakKeyDictionary
        )

    async def start(self) -> None:
        """Nothing to begin."""

    async def publish(self, topic: str) -> None:
        self.wake(topic)

    def subscribe(self, topic: str) -> Subscription:
        subscription = Subscription()
        self._subscriptions[topic][subscription] = None
        return subscription

    async def wait(self, topic: str, timeout_s: float) -> bool:
        subscription = self.subscribe(topic)
        try:
            async with asyncio.timeout(timeout_s):
                await anext(subscription)
        except TimeoutError:
            return False
        return True

    def wake(self, topic: str) -> None:
        """The same as `publish`, without waiting for anything."""
        for subscription in list(self._subscriptions.get(topic, ())):
            subscription.wake()

    def wake_all(self) -> None:
        """Everybody: nobody knows what was missed."""
        for topic in list(self._subscriptions):
            self.wake(topic)

    async def close(self) -> None:
        """Nothing to end."""
