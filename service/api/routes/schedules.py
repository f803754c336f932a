"""`/v1/schedules`: what a job would come to under each pipeline schedule."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from service import schedules
from service.api.access import Caller, Injected
from service.api.answers import REFUSALS, ObjectId
from service.api.routes.jobs import JobBody
from service.api.schemas.schedules import Comparison
from service.api.strict_json import StrictRoute

router = APIRouter(prefix="/v1", tags=["schedules"], route_class=StrictRoute, responses=REFUSALS)

Chain = Annotated[
    str | None,
    Query(
        min_length=1,
        max_length=4096,
        description="regions with their stages in pipeline order, like us-east-1:3,eu-west-1:2 or us-east-1/H100:3; "
        "else as the policy would place the job",
    ),
]
Pictured = Annotated[
    str | None, Query(max_length=32, description="the schedule whose timeline is drawn as well, as SVG")
]


@router.post("/schedules", response_model=Comparison)
async def compare(
    services: Injected,
    principal: Caller,
    document: JobBody,
    placement: Chain = None,
    picture: Pictured = None,
) -> Comparison:
    """Every pipeline schedule of a job on one chain: time, bubble, memory, traffic and cost. Nothing is stored."""
    return Comparison.of(await schedules.of_document(services, principal, document, placement, picture))


@router.get("/jobs/{job_id}/schedules", response_model=Comparison)
async def compare_job(
    services: Injected, principal: Caller, job_id: ObjectId, picture: Pictured = None
) -> Comparison:
    """The same of a job where it stands or stood last; of one that waits, where the policy would start it."""
    return Comparison.of(await schedules.of_job(services, principal, job_id, picture))
