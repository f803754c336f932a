"""Billing what is held, up to now, at intervals; the rest of an allocation is billed when it ends."""

from __future__ import annotations

from service import ledger
from service.control.leader import Leadership
from service.services import Services


async def bill(services: Services, leadership: Leadership) -> int:
    """Bill every live allocation; how many there were. Raises FencedError where another instance leads."""
    now_s = services.clock.now()
    return await leadership.write(lambda session: ledger.bill_live_allocations(session, now_s))
