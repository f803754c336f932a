"""Whether this server can do its work now."""

from __future__ import annotations

from dataclasses import dataclass

from service.db import common_clock, migrate
from service.db.repositories import leader
from service.db.session import Session
from service.errors import UnavailableError
from service.services import Services


@dataclass(frozen=True, slots=True)
class Readiness:
    """What must be so."""

    database: bool
    schema_current: bool
    leader: bool
    clock: bool
    """It agrees with the database's, hence with the other servers'."""

    @property
    def ready(self) -> bool:
        return self.database and self.schema_current and self.leader and self.clock


async def check(services: Services) -> Readiness:
    """Looks now."""
    now_s = services.clock.now()

    def work(session: Session) -> Readiness:
        is_current = migrate.current(session.connection) == migrate.head()
        leads = is_current and leader.get(session).expires_at_s > now_s
        agrees = abs(common_clock.offset_s(session, services.clock.now())) <= common_clock.MAX_OFFSET_S
        return Readiness(database=True, schema_current=is_current, leader=leads, clock=agrees)

    try:
        return await services.db.read(work)
    except UnavailableError:
        return Readiness(database=False, schema_current=False, leader=False, clock=False)
