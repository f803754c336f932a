"""The network between agents or clients and the replicas: it loses, delays, repeats, reorders, and comes apart."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import httpx

from tests.simulation.asgi import Stream
from tests.simulation.dice import Dice
from tests.simulation.door import Doorkeeper
from tests.simulation.replica import Replica
from tests.simulation.trace import Trace

CLIENT_TIMEOUT_S = 10.0
LATEST_S = 150.0
"""No copy arrives later than that."""
OTHER_REPLICA_ODDS = 0.05
"""Of a request: the load balancer sends it elsewhere than the last."""


@dataclass(slots=True)
class Weather:
    """How likely things go wrong with one request; 0 in a network that is well."""

    drop: float = 0.0
    delay: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0


@dataclass(slots=True)
class Cuts:
    """Who is cut off, by direction."""

    to_server: set[str] = field(default_factory=set)
    from_server: set[str] = field(default_factory=set)

    def clear(self) -> None:
        self.to_server.clear()
        self.from_server.clear()


class Network:
    """Carries requests. Every fault is drawn from the stream of its own kind."""

    def __init__(self, replicas: Sequence[Replica], door: Doorkeeper, trace: Trace, dice: Dice) -> None:
        self.door = door
        self.weather = Weather()
        self.cuts = Cuts()
        self._replicas = replicas
        self._trace = trace
        self._base = dice.of("network")
        self._routes: dict[str, int] = {}
        self._drop, self._delay = dice.of("fault drop"), dice.of("fault delay")
        self._duplicate, self._reorder = dice.of("fault duplicate"), dice.of("fault reorder")
        self._late: set[asyncio.Task[None]] = set()

    async def send(self, source: str, request: httpx.Request) -> httpx.Response:
        """The answer; ConnectError where nobody is there, ReadTimeout where none comes in time."""
        replica = self._route(source)
        there_s, back_s = self._base.uniform(0.002, 0.03), self._base.uniform(0.002, 0.03)
        if source in self.cuts.to_server or self._happens(self._drop, self.weather.drop / 2):
            self._trace.fault("drop", f"{source} request")
            return await self._no_answer(source, request)
        if self._happens(self._delay, self.weather.delay):
            there_s += self._delay.uniform(0.5, CLIENT_TIMEOUT_S)
            self._trace.fault("delay", source)
        if self._happens(self._duplicate, self.weather.duplicate):
            self._trace.fault("duplicate", source)
            self._later(self._duplicate.uniform(0.0, 20.0), request)
        if self._happens(self._reorder, self.weather.reorder):
            # The caller has long given up, and has sent others, when this one arrives.
            self._trace.fault("reorder", source)
            self._later(min(LATEST_S, CLIENT_TIMEOUT_S + self._reorder.expovariate(1 / 20.0)), request)
            return await self._no_answer(source, request)
        return await self._carry(source, replica, request, there_s, back_s)

    async def open(self, source: str, request: httpx.Request) -> Stream:
        """The beginning of an answer that goes on; a TransportError where there is none."""
        replica = self._route(source)
        await asyncio.sleep(self._base.uniform(0.002, 0.03))
        if not self.carries(source) or not replica.is_alive:
            self._routes.pop(source, None)
            raise httpx.ConnectError(f"{replica.name} is not reached", request=request)
        try:
            async with asyncio.timeout(CLIENT_TIMEOUT_S):
                return await replica.open(request)
        except TimeoutError:
            self._routes.pop(source, None)
            raise httpx.ReadTimeout(f"{replica.name} does not answer", request=request) from None

    def carries(self, source: str) -> bool:
        """Whether a connection of it stands."""
        return source not in self.cuts.to_server and source not in self.cuts.from_server

    def end_of_the_late(self) -> None:
        """What is still on its way never arrives."""
        for task in sorted(self._late, key=hash):
            task.cancel()
        self._late.clear()

    async def _carry(
        self, source: str, replica: Replica, request: httpx.Request, there_s: float, back_s: float
    ) -> httpx.Response:
        loop = asyncio.get_running_loop()
        give_up_s = loop.time() + CLIENT_TIMEOUT_S
        await asyncio.sleep(there_s)
        if not replica.is_alive:
            self._routes.pop(source, None)
            raise httpx.ConnectError(f"{replica.name} is down", request=request)
        serving = loop.create_task(replica.answer(request))
        serving.add_done_callback(_look_at_its_end)
        done, _ = await asyncio.wait({serving}, timeout=give_up_s - loop.time() - back_s)
        if not done:
            self._routes.pop(source, None)
            await asyncio.sleep(back_s)
            raise httpx.ReadTimeout(f"{replica.name} does not answer", request=request)
        try:
            answer = serving.result()
        except httpx.TransportError:
            self._routes.pop(source, None)
            raise
        self._trace.add(
            f"{source} {request.url.path} {replica.name} {answer.status_code} {len(answer.content)}"
        )
        if source in self.cuts.from_server or self._happens(self._drop, self.weather.drop / 2):
            self._trace.fault("drop", f"{source} answer")
            return await self._no_answer(source, request)
        await asyncio.sleep(back_s)
        return answer

    async def _no_answer(self, source: str, request: httpx.Request) -> httpx.Response:
        self._routes.pop(source, None)
        await asyncio.sleep(CLIENT_TIMEOUT_S)
        raise httpx.ReadTimeout("no answer", request=request)

    def _route(self, source: str) -> Replica:
        """The one that it spoke to last, mostly; a balancer that knows who lives, mostly."""
        number = self._routes.get(source)
        if number is None or self._base.random() < OTHER_REPLICA_ODDS:
            alive = [number for number, replica in enumerate(self._replicas) if replica.is_alive]
            number = self._base.choice(alive or range(len(self._replicas)))
            self._routes[source] = number
        return self._replicas[number]

    def _later(self, seconds: float, request: httpx.Request) -> None:
        task = asyncio.get_running_loop().create_task(self._arrive_late(seconds, request))
        self._late.add(task)
        task.add_done_callback(self._late.discard)

    async def _arrive_late(self, seconds: float, request: httpx.Request) -> None:
        copy = httpx.Request(request.method, request.url, headers=request.headers, content=request.content)
        await asyncio.sleep(seconds)
        replica = self._base.choice(self._replicas)
        try:
            answer = await replica.answer(copy)
        except httpx.TransportError:
            return
        self._trace.add(f"late {request.url.path} {replica.name} {answer.status_code}")
        if answer.headers.get("Idempotency-Replayed"):
            self._trace.sometimes("a repeated submission was answered with the first job")
        if answer.is_success and b'"reports":[{' in copy.content:
            self._trace.sometimes("reports that came twice were stored once")

    @staticmethod
    def _happens(dice: random.Random, odds: float) -> bool:
        return odds > 0.0 and dice.random() < odds


def _look_at_its_end(serving: asyncio.Task[httpx.Response]) -> None:
    """Also where nobody waits for it any more: its caller may have given up, or died."""
    if not serving.cancelled():
        serving.exception()
