"""The history as a caller may see it."""

from __future__ import annotations

from service.access import Principal
from service.db.records import EventRecord
from service.db.repositories import events
from service.services import Services


async def after(services: Services, principal: Principal, seq: int, limit: int) -> list[EventRecord]:
    """Events of the caller's project and of what all share, after a number, oldest first."""
    return await services.db.read(lambda session: events.after(session, principal.scope, seq, limit))


async def newest(services: Services) -> int:
    """The number of the newest event."""
    return await services.db.read(events.last_seq)
