"""What the service needs from outside, as ports: each has a real adapter and an in-memory twin."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Protocol, TypeVar

from service.db.session import Session

A = TypeVar("A")
R = TypeVar("R")
T = TypeVar("T")


class Clock(Protocol):
    """The server's time. Every duration and every liveness decision is by this clock alone."""

    def now(self) -> float:
        """Epoch seconds, UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds that never step back."""
        ...

    async def sleep(self, seconds: float) -> None: ...


class Ids(Protocol):
    """New identifiers: `<prefix>-<26 characters>`, ordered by time of creation, of [a-z0-9-]."""

    def new(self, prefix: str) -> str: ...

    def secret(self) -> str:
        """A fresh secret, 256 bits, URL-safe."""
        ...


class Db(Protocol):
    """Runs a function of database work in one transaction: committed whole, or not at all.

    In production on a bounded pool of threads; in the simulation tests inline. `work` must be safe to run again:
    it is retried where the database says that the transaction could not be serialised or is busy.
    """

    async def run(self, work: Callable[[Session], T]) -> T: ...

    async def read(self, work: Callable[[Session], T]) -> T:
        """The same for work that only reads: it sees one consistent state, and waits for no writer."""
        ...

    async def together(self, work: Callable[[Session, Sequence[A]], Sequence[R | None]], item: A) -> R | None:
        """Many of a kind as one: `work` is called for all items that have come in with it meanwhile, and gives an
        answer for each, in their order. None: nothing of that item was stored, it has to be tried alone (`run`)."""
        ...

    def close(self) -> None: ...


class Compute(Protocol):
    """Runs a pure function away from the event loop: planning, explaining. Inline in the simulation tests. `asker` is
    the token whose question it is; None where the service itself wants to know."""

    async def run(self, function: Callable[[], T], asker: str | None = None) -> T: ...

    def close(self) -> None: ...


class Bus(Protocol):
    """Wakes whoever waits; carries no content. Losing a message costs time, never correctness."""

    async def publish(self, topic: str) -> None: ...

    def subscribe(self, topic: str) -> AsyncIterator[None]:
        """Yields once for every wake-up from this call on (several may fold into one)."""
        ...

    async def wait(self, topic: str, timeout_s: float) -> bool:
        """Until the next message of the topic, or the time is over; True if there was one."""
        ...
