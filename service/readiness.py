"""Whether this server can do its work now."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy.orm import Session

from service.db import migrate
from service.db.repositories import leader
from service.errors import UnavailableError
from service.services import Services


@dataclass(frozen=True, slots=True)
class Readiness:
    """What must be so."""

    database: bool
    schema_current: bool
    leader: bool

    @property
    def ready(self) -> bool:
        return self.database and self.schema_current and self.leader


async def check(services: Services) -> Readiness:
    """Looks now."""
    now_s = services.clock.now()

    def work(session: Session) -> Readiness:
        is_current = migrate.current(session.connection()) == migrate.head()
        leads = is_current and leader.get(session).expires_at_s > now_s
        return Readiness(database=True, schema_current=is_current, leader=leads)

    try:
        return await services.db.read(work)
    except UnavailableError:
        return Readiness(database=False, schema_current=False, leader=False)
