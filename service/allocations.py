"""Allocations over time: what a Gantt chart shows."""

from __future__ import annotations

from service import cursors
from service.access import Principal
from service.db.repositories import allocations, jobs
from service.db.session import Session
from service.job_views import AllocationView, view_allocation
from service.services import Services


async def list_page(
    services: Services,
    principal: Principal,
    *,
    from_s: float,
    to_s: float,
    cursor: str | None,
    limit: int,
) -> tuple[list[AllocationView], str | None]:
    """Those that held anything in [from_s, to_s], oldest first, and the cursor of what follows."""
    after = cursors.decode(cursor)

    def work(session: Session) -> list[AllocationView]:
        found = allocations.between(session, principal.scope, from_s, to_s, after, limit + 1)
        names = jobs.names(session, {allocation.job_id for allocation in found})
        return [view_allocation(allocation, names[allocation.job_id]) for allocation in found]

    views = await services.db.read(work)
    if len(views) <= limit:
        return views, None
    last = views[limit - 1].allocation
    return views[:limit], cursors.encode(last.created_at_s, last.allocation_id)
