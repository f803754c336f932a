"""`/v1/audit`: who did what."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from service import audit, limits
from service.api.access import Caller, Injected
from service.api.answers import REFUSALS, Cursor, Limit, Project
from service.api.schemas.accounts import ACCOUNT_PATTERN
from service.api.schemas.audit import AuditEntry
from service.api.schemas.base import Page
from service.api.strict_json import StrictRoute
from service.audit import Outcome

router = APIRouter(prefix="/v1/audit", tags=["access"], route_class=StrictRoute, responses=REFUSALS)


@router.get("", response_model=Page[AuditEntry])
async def list_audit(
    services: Injected,
    principal: Caller,
    project: Project = None,
    account: Annotated[str | None, Query(pattern=ACCOUNT_PATTERN, description="of one account")] = None,
    outcome: Annotated[Outcome | None, Query(description="what came of it")] = None,
    cursor: Cursor = None,
    limit: Limit = limits.PAGE_DEFAULT,
) -> Page[AuditEntry]:
    """Every request that may have changed something and every denial, the newest first: of the caller's project, or of
    everything. What changed nothing is here after some seconds."""
    found, following = await audit.list_page(
        services.db,
        principal,
        project=project,
        account=account,
        outcome=outcome,
        cursor=cursor,
        limit=limit,
    )
    return Page(items=[AuditEntry.model_validate(entry) for entry in found], next=following)
