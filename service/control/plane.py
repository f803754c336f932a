"""The control plane of one instance: wait until it leads, run every loop, and begin again if it is deposed."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

import structlog
from sqlalchemy.exc import SQLAlchemyError

from scheduler.errors import SchedulerError
from service import topics
from service.control import billing, leader
from service.control.errors import FencedError
from service.control.leader import Leadership
from service.control.link_tests import measure_links
from service.control.liveness import Liveness
from service.control.observe import Observer
from service.control.prune import prune
from service.control.reconcile import reconcile
from service.control.scheduling import Scheduler
from service.errors import ServiceError
from service.services import Services

OBSERVE_S = 5.0
LINKS_S = 5.0
PRUNE_S = 300.0
RENEWALS_A_LEASE = 3
RETRY_S = 1.0
"""After a round that failed: the next one begins from the database again."""
RESTS_A_ROUND = 3.0
"""After a planning round the loop rests so many times as long as it took, so that a storm of submissions, each of which
wakes it, leaves three quarters of a core to the API."""

log = structlog.get_logger(__name__)


class ControlPlane:
    """Runs the loops wherever `services` lead. `run` ends only by cancellation."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._holder = leader.holder_of(services)

    async def run(self) -> None:
        """Lead whenever possible, until cancelled."""
        self._show(0)
        while True:
            leadership = await self._take()
            log.info("leads", epoch=leadership.epoch, holder=leadership.holder)
            self._show(1, leadership.epoch)
            try:
                # In a task of its own: a group that fails leaves a cancellation on the task that it stands in.
                await asyncio.create_task(self._lead(leadership))
            except* FencedError:
                log.warning("deposed", epoch=leadership.epoch)
            finally:
                self._show(0)
                self._services.metrics.clear_cluster()
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                # And one that is cancelled while one of its tasks fails raises that failure alone.
                raise asyncio.CancelledError

    async def _take(self) -> Leadership:
        while True:
            try:
                await leader.check_clock(self._services)
                leadership = await leader.take(self._services, self._holder)
            except (ServiceError, SQLAlchemyError) as error:
                log.warning("cannot_lead", error=str(error))
                leadership = None
            if leadership is not None:
                return leadership
            await self._services.clock.sleep(self._renewal_s())

    async def _lead(self, leadership: Leadership) -> None:
        services, settings = self._services, self._services.settings
        scheduler, liveness = Scheduler(services, leadership), Liveness(services, leadership)
        observer = Observer(services)
        try:
            async with asyncio.TaskGroup() as loops:
                for name, interval_s, work in (
                    ("renew", self._renewal_s(), leadership.renew),
                    ("liveness", settings.tick_s, liveness.sweep),
                    ("reconcile", settings.tick_s, lambda: reconcile(services, leadership)),
                    ("bill", settings.bill_interval_s, lambda: billing.bill(services, leadership)),
                    ("observe", OBSERVE_S, observer.observe),
                    ("links", LINKS_S, lambda: measure_links(services, leadership)),
                    ("prune", PRUNE_S, lambda: prune(services, leadership)),
                ):
                    loops.create_task(self._every(name, interval_s, work), name=name)
                loops.create_task(self._when_woken(scheduler.plan), name="plan")
        except asyncio.CancelledError:
            with contextlib.suppress(ServiceError, SQLAlchemyError):  # the lease ends by itself
                await leadership.resign()
            raise

    async def _every(self, name: str, interval_s: float, work: Callable[[], Awaitable[object]]) -> None:
        while True:
            await self._services.clock.sleep(interval_s if await self._try(name, work) else RETRY_S)

    async def _when_woken(self, work: Callable[[], Awaitable[object]]) -> None:
        """Rounds as often as something changed and there is time, and at least every `plan_interval_s`."""
        clock, interval_s = self._services.clock, self._services.settings.plan_interval_s
        wakes = self._services.bus.subscribe(topics.PLANNING)
        woken = asyncio.ensure_future(_next(wakes))
        try:
            while True:
                began_s = clock.monotonic()
                succeeded = await self._try("plan", work)
                rest_s = min(interval_s, RESTS_A_ROUND * (clock.monotonic() - began_s))
                rest_s = rest_s if succeeded else max(rest_s, RETRY_S)
                if rest_s:
                    await clock.sleep(rest_s)
                patience = asyncio.ensure_future(clock.sleep(interval_s))
                try:
                    await asyncio.wait({woken, patience}, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    patience.cancel()
                if woken.done():
                    woken.result()
                    woken = asyncio.ensure_future(_next(wakes))
        finally:
            woken.cancel()

    async def _try(self, name: str, work: Callable[[], Awaitable[object]]) -> bool:
        """One round of a loop; False if it failed. What deposes this instance goes on to end its leadership."""
        metrics = self._services.metrics
        try:
            await work()
        except FencedError:
            raise
        except (ServiceError, SchedulerError, SQLAlchemyError) as error:
            metrics.loop_failures.labels(name).inc()
            log.error("loop_failed", loop=name, error=str(error), exc_info=error)
            return False
        metrics.loop_last_success.labels(name).set(self._services.clock.now())
        return True

    def _renewal_s(self) -> float:
        return self._services.settings.leader_lease_s / RENEWALS_A_LEASE

    def _show(self, leads: int, epoch: int | None = None) -> None:
        self._services.metrics.leader.set(leads)
        if epoch is not None:
            self._services.metrics.leader_epoch.set(epoch)


async def _next(wakes: AsyncIterator[None]) -> None:
    await anext(wakes)
