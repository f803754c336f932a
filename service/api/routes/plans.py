"""`/v1/plans`: dry runs."""

from __future__ import annotations

from fastapi import APIRouter

from service import dry_runs
from service.api.access import Caller, Injected
from service.api.answers import REFUSALS
from service.api.routes.jobs import JobBody
from service.api.schemas.plans import DryRun
from service.api.strict_json import StrictRoute

router = APIRouter(prefix="/v1/plans", tags=["plans"], route_class=StrictRoute, responses=REFUSALS)


@router.post("", response_model=DryRun)
async def plan(services: Injected, principal: Caller, document: JobBody) -> DryRun:
    """What would be decided about this job now. Nothing is stored."""
    return DryRun.of(await dry_runs.plan(services, principal, document))
