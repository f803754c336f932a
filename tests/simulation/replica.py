"""One replica of the server: the real application and the real control loops, over simulated ports."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

import httpx
from fastapi import FastAPI

from service.app import create_app
from service.authentication import Authenticator
from service.bookkeeping import Bookkeeping
from service.control.plane import ControlPlane
from service.services import Services
from service.settings import Settings
from service.snapshots import SnapshotReader
from tests.simulation import asgi
from tests.simulation.asgi import Stream
from tests.simulation.bus import Redis
from tests.simulation.clocks import START_S, Gate
from tests.simulation.database import Database, ReplicaDb, commit_of_this_task
from tests.simulation.door import Doorkeeper
from tests.simulation.trace import Trace

T = TypeVar("T")

COMMIT = "bace_simulated_commit"
"""Extension of an answer: the last commit before its request came. It knows of that one, and perhaps of later ones."""
_DIGITS = "0123456789abcdefghjkmnpqrstvwxyz"


class ReplicaClock:
    """`ports.Clock`: a replica's clock is a little off, and whoever is stopped does not notice the time."""

    def __init__(self, loop: asyncio.AbstractEventLoop, gate: Gate, skew_s: float) -> None:
        self._loop = loop
        self._gate = gate
        self._skew_s = skew_s

    def now(self) -> float:
        return START_S + self._loop.time() + self._skew_s

    def monotonic(self) -> float:
        return self._loop.time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        await self._gate.through()


class DrawnIds:
    """`ports.Ids` in the shape of ULIDs, from a seed."""

    def __init__(self, clock: ReplicaClock, dice: random.Random) -> None:
        self._clock = clock
        self._dice = dice

    def new(self, prefix: str) -> str:
        milliseconds = int(self._clock.now() * 1000)
        moment = "".join(_DIGITS[milliseconds >> shift & 31] for shift in range(45, -1, -5))
        rest = self._dice.getrandbits(80)
        return f"{prefix}-{moment}" + "".join(_DIGITS[rest >> shift & 31] for shift in range(75, -1, -5))

    def secret(self) -> str:
        return "".join(self._dice.choices(_DIGITS, k=43))


class SlowCompute:
    """`ports.Compute`: the result is that of the moment at which it was asked, and comes later."""

    def __init__(self, gate: Gate, database: Database, trace: Trace, dice: random.Random) -> None:
        self._gate = gate
        self._database = database
        self._trace = trace
        self._dice = dice
        self.stops_for_s = 0.0
        """The process is stopped for so long while it makes its next plan."""

    async def run(self, function: Callable[[], T], asker: str | None = None) -> T:
        epoch = self._database.epoch()
        result = function()
        if self.stops_for_s:
            self._gate.stop_for(self.stops_for_s)
            self.stops_for_s = 0.0
        slow = self._dice.random() < 0.05
        await asyncio.sleep(self._dice.uniform(1.0, 8.0) if slow else self._dice.uniform(0.001, 0.1))
        await self._gate.through()
        if self._database.epoch() != epoch:
            self._trace.sometimes("the leader changed while a plan was made")
        return result

    def close(self) -> None:
        """Nothing to wait for."""


@cache
def _application(number: int, settings: Settings) -> FastAPI:
    """Its routes keep nothing between requests: one is enough for all lives of a replica."""
    return create_app(Services(settings, *[None] * 5))  # type: ignore[arg-type]  # each life brings its own


class Replica:
    """A server that starts, is stopped, goes on, dies and starts again. The database is all that it keeps."""

    def __init__(
        self,
        number: int,
        settings: Settings,
        database: Database,
        redis: Redis,
        door: Doorkeeper,
        trace: Trace,
        dice: random.Random,
    ) -> None:
        self.name = f"replica-{number}"
        self.gate = Gate()
        self.is_alive = False
        self.services: Services | None = None
        self._app = _application(number, settings)
        self._settings = settings
        self._database = database
        self._redis = redis
        self._door = door
        self._trace = trace
        self._dice = dice
        self._skew_s = dice.uniform(-0.2, 0.2)
        self._tasks: set[asyncio.Task[Any]] = set()

    def start(self) -> Services:
        """A new life."""
        loop = asyncio.get_running_loop()
        self._bus = self._redis.join()
        self._db = ReplicaDb(self._database, self.name, self.gate, self._bus, self._dice)
        self.compute = SlowCompute(self.gate, self._database, self._trace, self._dice)
        clock = ReplicaClock(loop, self.gate, self._skew_s)
        self.services = Services(
            settings=self._settings,
            clock=clock,
            ids=DrawnIds(clock, self._dice),
            db=self._db,
            bus=self._bus,
            compute=self.compute,
            snapshots=SnapshotReader(self._settings.region_cooldown_s),
        )
        self._app.state.services = self.services
        epoch = self.services.metrics.leader_epoch
        self._db.epoch_held = lambda: next(iter(epoch.collect())).samples[0].value
        authenticator = self._app.state.authenticator = Authenticator(self.services)
        self._keep(loop.create_task(Bookkeeping(self.services, authenticator).run()))
        self.is_alive = True
        self._trace.add(f"{self.name} starts")
        return self.services

    def lead_when_possible(self) -> None:
        """The control loops, beside the API."""
        assert self.services is not None
        plane = self._keep(
            asyncio.get_running_loop().create_task(ControlPlane(self.services).run(), name="plane")
        )
        plane.add_done_callback(self._plane_ended)

    def crash(self) -> None:
        """kill -9: what is committed stays, everything else is gone."""
        self._trace.add(f"{self.name} dies")
        self.is_alive = False
        self._db.is_dead = True
        self._redis.leave(self._bus)
        self.gate.open()
        for task in sorted(self._tasks, key=hash):
            task.cancel()
        self._tasks.clear()

    def stop_with_its_plan(self, seconds: float) -> None:
        """For so long, when its next plan is about to be written; 0: not at all."""
        self._db.stops_with_plan_s = seconds

    @property
    def is_cut_off(self) -> bool:
        return self._db.is_cut_off

    @is_cut_off.setter
    def is_cut_off(self, cut: bool) -> None:
        self._db.is_cut_off = cut

    async def answer(self, request: httpx.Request) -> httpx.Response:
        """What it answers. Raises ConnectError where it is not there, or dies meanwhile."""
        if not self.is_alive:
            raise httpx.ConnectError(f"{self.name} is down", request=request)
        task = self._keep(asyncio.get_running_loop().create_task(self._serve(request)))
        await asyncio.wait({task})
        if task.cancelled():
            raise httpx.ReadError(f"{self.name} died", request=request)
        return task.result()

    async def open(self, request: httpx.Request) -> Stream:
        """An answer that goes on. Raises ConnectError where it is not there."""
        if not self.is_alive:
            raise httpx.ConnectError(f"{self.name} is down", request=request)
        stream = Stream()
        self._keep(asyncio.get_running_loop().create_task(self._follow(request, stream)))
        await stream.has_begun.wait()
        return stream

    async def _follow(self, request: httpx.Request, stream: Stream) -> None:
        db = self._db
        try:
            await asgi.follow(self._app, request, stream, self.gate.through)
        except Exception as error:  # noqa: BLE001 - of a replica that is dead nothing is expected
            if not db.is_dead:
                self._trace.violation("no-defect", f"{request.method} {request.url.path}: {error!r}")

    async def _serve(self, request: httpx.Request) -> httpx.Response:
        await self.gate.through()
        why_not = self._door.forbids(request)
        known = self._database.commits
        commit_of_this_task.set(0)
        answer = await asgi.whole(self._app, request)
        own = commit_of_this_task.get()
        self._door.judge(why_not, request, answer.status, own)
        if answer.status == 500:
            self._trace.violation("no-defect", f"{request.method} {request.url.path}: {answer.body[:300]!r}")
        extensions = {COMMIT: known}
        return httpx.Response(
            answer.status, headers=answer.headers, content=answer.body, extensions=extensions
        )

    def _keep(self, task: asyncio.Task[T]) -> asyncio.Task[T]:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _plane_ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and self.is_alive:
            self._trace.violation("loops-never-end", f"{self.name}: {task.exception()!r}")
