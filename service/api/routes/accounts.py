"""`/v1/accounts`: people and programs, and their roles."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path

from service import accounts
from service.access import AccountKind, Grant, Role
from service.api.access import Caller, Injected, Tokens
from service.api.answers import REFUSALS
from service.api.schemas.accounts import ACCOUNT_PATTERN, Account, CreateAccount, PutRole
from service.api.schemas.base import Page
from service.api.strict_json import StrictRoute
from service.db.tables import SHARED_PROJECT

AccountPath = Annotated[str, Path(pattern=ACCOUNT_PATTERN)]
RoleProject = Annotated[
    str, Path(pattern=r"^(\*|[a-z0-9][a-z0-9-]{0,62})$", description="a project, or * for all of them")
]

router = APIRouter(prefix="/v1/accounts", tags=["access"], route_class=StrictRoute, responses=REFUSALS)


@router.get("", response_model=Page[Account])
async def list_accounts(services: Injected, principal: Caller) -> Page[Account]:
    """The accounts that belong to the caller's project or hold a role in it; all for an administrator."""
    return Page(items=[Account.of(view) for view in await accounts.list_all(services, principal)])


@router.post("", status_code=201, response_model=Account)
async def create_account(services: Injected, principal: Caller, body: CreateAccount) -> Account:
    """Make an account, with its first role if one is given. It can do nothing before it has a token."""
    grant = None if body.role is None else Grant(Role(body.role), body.project or SHARED_PROJECT)
    made = await accounts.create(
        services, principal, name=body.name, kind=AccountKind(body.kind), grant=grant
    )
    return Account.of(made)


@router.put("/{account}/roles/{project}", response_model=Account)
async def put_role(
    services: Injected,
    principal: Caller,
    known: Tokens,
    account: AccountPath,
    project: RoleProject,
    body: PutRole,
) -> Account:
    """Give an account a role in a project, in place of the one that it had there; null takes it away."""
    role = None if body.role is None else Role(body.role)
    return Account.of(await accounts.put_role(services, known, principal, account, project, role))


@router.post("/{account}/disable", response_model=Account)
async def disable(services: Injected, principal: Caller, known: Tokens, account: AccountPath) -> Account:
    """None of its tokens opens anything any more. Again changes nothing."""
    return Account.of(await accounts.set_disabled(services, known, principal, account, disabled=True))


@router.post("/{account}/enable", response_model=Account)
async def enable(services: Injected, principal: Caller, known: Tokens, account: AccountPath) -> Account:
    """Its tokens open again what they opened. Again changes nothing."""
    return Account.of(await accounts.set_disabled(services, known, principal, account, disabled=False))
