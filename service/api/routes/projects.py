"""`/v1/projects`: the tenants."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Response

from service import projects
from service.api.access import Caller, Injected
from service.api.answers import REFUSALS
from service.api.schemas.base import Page
from service.api.schemas.projects import CreateProject, Project, PutProject, PutQuota
from service.api.strict_json import StrictRoute
from service.db.records import QuotaRecord

ProjectPath = Annotated[str, Path(pattern=r"^[a-z0-9][a-z0-9-]{0,62}$")]

router = APIRouter(prefix="/v1/projects", tags=["access"], route_class=StrictRoute, responses=REFUSALS)


@router.get("", response_model=Page[Project])
async def list_projects(services: Injected, principal: Caller) -> Page[Project]:
    """The projects that the caller sees."""
    found = await projects.list_all(services, principal)
    return Page(items=[Project.model_validate(view) for view in found])


@router.post("", status_code=201, response_model=Project)
async def create_project(services: Injected, principal: Caller, body: CreateProject) -> Project:
    """Make a project beforehand; one that is there stays as it is."""
    return Project.model_validate(await projects.create(services, principal, body.project))


@router.put("/{project}", response_model=Project, responses={201: {"model": Project}})
async def put_project(
    services: Injected, principal: Caller, response: Response, project: ProjectPath, body: PutProject
) -> Project:
    """Give a project its share of the cluster, for policies that keep shares; makes the project if need be."""
    view, is_new = await projects.put_share(services, principal, project, body.share)
    response.status_code = 201 if is_new else 200
    return Project.model_validate(view)


@router.put("/{project}/quota", response_model=Project, responses={201: {"model": Project}})
async def put_quota(
    services: Injected, principal: Caller, response: Response, project: ProjectPath, body: PutQuota
) -> Project:
    """Bound what a project may hold at once and spend in a month; makes the project if need be. What runs goes on."""
    quota = QuotaRecord(body.gpus, body.usd_per_month)
    view, is_new = await projects.put_quota(services, principal, project, quota)
    response.status_code = 201 if is_new else 200
    return Project.model_validate(view)
