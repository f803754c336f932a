"""What is noted beside the requests and stored every few seconds, off their path: denials and refusals for the audit
log, and when tokens were used."""

from __future__ import annotations

import structlog
from sqlalchemy.exc import SQLAlchemyError

from service import limits
from service.authentication import Authenticator
from service.errors import ServiceError
from service.services import Services

_log = structlog.get_logger(__name__)


class Bookkeeping:
    """Of one application. What could not be stored is kept for the next time."""

    def __init__(self, services: Services, authenticator: Authenticator) -> None:
        self._services = services
        self._authenticator = authenticator

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._services.clock.sleep(limits.BOOKKEEPING_S)
            await self.write()

    async def write(self) -> None:
        """Store what there is."""
        try:
            await self._services.audit.write(self._services.db)
            await self._authenticator.write_uses()
        except (ServiceError, SQLAlchemyError) as error:
            _log.warning("bookkeeping_failed", error=str(error))
