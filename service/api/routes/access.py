"""`/v1/tokens`, `/v1/projects`, `/v1/whoami`."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Response

from service import projects, tokens
from service.access import Role
from service.api.access import Caller, Injected, Tokens
from service.api.answers import REFUSALS
from service.api.schemas.access import (
    CreateProject,
    CreateToken,
    NewToken,
    Project,
    PutProject,
    Token,
    WhoAmI,
)
from service.api.schemas.base import Page, flat
from service.api.strict_json import StrictRoute
from service.tokens import TokenRequest

ProjectPath = Annotated[str, Path(pattern=r"^[a-z0-9][a-z0-9-]{0,62}$")]

router = APIRouter(prefix="/v1", tags=["access"], route_class=StrictRoute, responses=REFUSALS)


@router.get("/whoami", response_model=WhoAmI)
async def who_am_i(principal: Caller) -> WhoAmI:
    """What the token that asks is for."""
    return WhoAmI.model_validate(principal)


@router.get("/tokens", response_model=Page[Token])
async def list_tokens(services: Injected, principal: Caller) -> Page[Token]:
    """All tokens, revoked ones included, without their text."""
    found = await tokens.list_all(services, principal)
    return Page(items=[Token.model_validate(token) for token in found])


@router.post("/tokens", status_code=201, response_model=NewToken)
async def create_token(
    services: Injected, principal: Caller, response: Response, body: CreateToken
) -> NewToken:
    """Make a token. Its text is in this answer, and never shown again."""
    request = TokenRequest(body.name, Role(body.role), body.project, body.expires_in_s)
    made = await tokens.create(services, principal.token_id, request)
    response.headers["Cache-Control"] = "no-store"
    return NewToken.model_validate(flat(made.record, token=made.text))


@router.post("/tokens/{token_id}/revoke", response_model=Token)
async def revoke_token(services: Injected, principal: Caller, known: Tokens, token_id: str) -> Token:
    """End a token, now and for ever; streams that it opened end too."""
    return Token.model_validate(await tokens.revoke(services, known, principal, token_id))


@router.get("/projects", response_model=Page[Project])
async def list_projects(services: Injected, principal: Caller) -> Page[Project]:
    """The projects that the caller sees."""
    found = await projects.list_all(services, principal)
    return Page(items=[Project.model_validate(view) for view in found])


@router.post("/projects", status_code=201, response_model=Project)
async def create_project(services: Injected, principal: Caller, body: CreateProject) -> Project:
    """Make a project beforehand; one that is there stays as it is."""
    return Project.model_validate(await projects.create(services, principal, body.project))


@router.put("/projects/{project}", response_model=Project, responses={201: {"model": Project}})
async def put_project(
    services: Injected, principal: Caller, response: Response, project: ProjectPath, body: PutProject
) -> Project:
    """Give a project its share of the cluster, for policies that keep shares; makes the project if need be."""
    view, is_new = await projects.put_share(services, principal, project, body.share)
    response.status_code = 201 if is_new else 200
    return Project.model_validate(view)
