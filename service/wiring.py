"""The composition root: which adapter stands behind which port, and what runs beside the API."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fastapi import FastAPI
from sqlalchemy import Engine

from scheduler.cluster import RestartCosts
from scheduler.spec.links import BPS_PER_GBPS
from service.adapters.clock import SystemClock
from service.adapters.compute import BoundedCompute, ThreadCompute
from service.adapters.database import ThreadPoolDb
from service.adapters.ids import UlidIds
from service.adapters.local_bus import LocalBus
from service.app import create_app, create_control_app
from service.control.plane import ControlPlane
from service.db.engine import make_engine
from service.metrics import Metrics
from service.ports import Compute
from service.services import Services
from service.settings import ServerRole, Settings
from service.snapshots import SnapshotReader

if TYPE_CHECKING:
    from service.adapters.redis_bus import RedisBus


@dataclass(frozen=True, slots=True)
class Assembly:
    """A server that has not been started."""

    services: Services
    app: FastAPI
    engine: Engine
    planner: Compute
    """Threads of its own: what clients ask, however long it takes and however many they are, keeps no job waiting."""

    def close(self) -> None:
        """Ends the threads and connections, once the application has ended."""
        self.planner.close()
        self.services.compute.close()
        self.services.db.close()


def assemble(settings: Settings) -> Assembly:
    """Everything, from the settings alone. The database is not touched yet."""
    bus = _bus(settings)
    # One connection for each thread that reads, and one for that which writes.
    engine = make_engine(settings.database, connections=settings.db_threads + 1)
    metrics = Metrics()
    services = Services(
        settings=settings,
        clock=SystemClock(),
        ids=UlidIds(),
        db=ThreadPoolDb(engine, bus, settings.db_threads),
        bus=bus,
        compute=BoundedCompute(
            ThreadCompute(), settings.max_planner_questions, metrics.rate_limited.labels("planner").inc
        ),
        metrics=metrics,
        snapshots=SnapshotReader(
            settings.region_cooldown_s,
            RestartCosts(settings.restart_fixed_s, settings.storage_gbps_per_gpu * BPS_PER_GBPS),
        ),
    )

    planner = ThreadCompute()

    async def beside() -> None:
        await bus.start()
        try:
            if settings.role is ServerRole.API:
                await asyncio.Event().wait()
            await ControlPlane(replace(services, compute=planner)).run()
        finally:
            await bus.close()

    create = create_control_app if settings.role is ServerRole.CONTROL else create_app
    return Assembly(services, create(services, beside), engine, planner)


def _bus(settings: Settings) -> LocalBus | RedisBus:
    if not settings.redis_url:
        return LocalBus()
    from service.adapters.redis_bus import RedisBus  # most servers need none, and it takes long to import

    return RedisBus(settings.redis_url)
