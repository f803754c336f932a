"""Accounts: people and programs, and the role that each holds in a project. Tokens belong to them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from service import limits
from service.access import AccountKind, Grant, Principal, Role
from service.authentication import Authenticator
from service.db.records import AccountRecord, RoleRecord
from service.db.repositories import access, accounts, events
from service.db.session import Session
from service.db.tables import SHARED_PROJECT
from service.errors import ConflictError, FieldError, ForbiddenError, InvalidInputError, NotFoundError
from service.services import Services

ADMINISTRATOR = "admin"
"""The account that a server makes where there is no administrator."""


@dataclass(frozen=True, slots=True)
class AccountView:
    """An account and its roles, as far as the caller may see them."""

    account: AccountRecord
    roles: tuple[RoleRecord, ...]


async def list_all(services: Services, principal: Principal) -> list[AccountView]:
    """Those that belong to the caller's project or hold a role in it; all for an administrator of everything."""

    def work(session: Session) -> list[AccountView]:
        found = accounts.visible(session, principal.scope)
        roles = accounts.roles_of(session, [account.account_id for account in found])
        return [_view(principal, account, roles.get(account.account_id, [])) for account in found]

    return await services.db.read(work)


async def create(
    services: Services, principal: Principal, *, name: str, kind: AccountKind, grant: Grant | None
) -> AccountView:
    """Makes an account, with its first role if one is given.

    An administrator of a project makes service accounts of that project; people are taken in by an administrator of
    everything. Raises ForbiddenError, InvalidInputError, ConflictError for a name that is taken.
    """
    if principal.role is not Role.ADMIN and kind is not AccountKind.SERVICE:
        raise ForbiddenError(
            "kind: an administrator of a project makes service accounts; accounts of users are made by an "
            "administrator of the platform, and you can grant them a role in your project"
        )
    if grant is not None:
        _check_grant(principal, grant)
    now_s = services.clock.now()
    account = AccountRecord(
        account_id=services.ids.new("account"),
        project=principal.project,
        name=name,
        kind=kind.value,
        created_at_s=now_s,
        disabled_at_s=None,
    )

    def work(session: Session) -> AccountView:
        if accounts.count_of_project(session, account.project) >= limits.MAX_ACCOUNTS:
            raise ConflictError(f"project {account.project} has {limits.MAX_ACCOUNTS} accounts already")
        if not accounts.add(session, account):
            raise ConflictError(f"name: there is an account {name} already: choose another name")
        _tell(session, account, "account.created", now_s, principal.token_id, {"kind": account.kind})
        if grant is not None:
            _give(session, account, grant, now_s, principal.token_id)
        return _shown(session, principal, account)

    return await services.db.run(work)


async def put_role(
    services: Services,
    authenticator: Authenticator,
    principal: Principal,
    name: str,
    project: str,
    role: Role | None,
) -> AccountView:
    """Gives an account a role in a project in place of the one that it had; None takes it away. Its tokens that need
    more than it then has open nothing any more.

    Raises ForbiddenError for more than the caller has, InvalidInputError for a role that is none in such a project,
    NotFoundError.
    """
    if role is not None:
        _check_grant(principal, Grant(role, project))
    elif not principal.scope.covers(project):
        raise ForbiddenError(f"project: {project} is not this token's project ({principal.project})")
    now_s = services.clock.now()

    def work(session: Session) -> AccountView:
        account = _named(session, name)
        if role is not None:
            _give(session, account, Grant(role, project), now_s, principal.token_id)
        elif any(held.project == project for held in _roles(session, account)):
            accounts.drop_role(session, account.account_id, project)
            data = {"project": project, "role": None}
            _tell(session, account, "account.role", now_s, principal.token_id, data, project)
        return _shown(session, principal, account)

    view = await services.db.run(work)
    authenticator.forget_account(view.account.account_id)
    return view


async def set_disabled(
    services: Services, authenticator: Authenticator, principal: Principal, name: str, *, disabled: bool
) -> AccountView:
    """Disables an account and thereby every token of it, or enables it again; again changes nothing.

    Raises NotFoundError, ForbiddenError for an account that is not the caller's project's, ConflictError for one's own.
    """
    now_s = services.clock.now()

    def work(session: Session) -> AccountView:
        account = find(session, principal, name)
        if not principal.scope.covers(account.project):
            raise ForbiddenError(f"account {name} is not {principal.project}'s: take its role away instead")
        if account.account_id == principal.account_id:
            raise ConflictError("nobody disables the account that they act as")
        if accounts.set_disabled(session, account.account_id, now_s if disabled else None):
            kind = "account.disabled" if disabled else "account.enabled"
            _tell(session, account, kind, now_s, principal.token_id, {})
        return _shown(session, principal, _named(session, name))

    view = await services.db.run(work)
    authenticator.forget_account(view.account.account_id)
    return view


def find(session: Session, principal: Principal, name: str) -> AccountRecord:
    """An account that the caller sees: its own, and those of its project. Raises NotFoundError."""
    account = _named(session, name)
    if account.account_id == principal.account_id or principal.scope.covers(account.project):
        return account
    if any(principal.scope.covers(held.project) for held in _roles(session, account)):
        return account
    raise _unknown(name)


def grants_of(session: Session, account_id: str) -> list[Grant]:
    """What the account may do."""
    held = accounts.roles_of(session, [account_id]).get(account_id, [])
    return [Grant(Role(each.role), each.project) for each in held]


def make_administrator(session: Session, account_id: str, now_s: float, actor: str) -> AccountRecord:
    """The server's own administrator, made or enabled again."""
    account = accounts.named(session, ADMINISTRATOR)
    if account is None:
        account = AccountRecord(
            account_id, SHARED_PROJECT, ADMINISTRATOR, AccountKind.USER.value, now_s, disabled_at_s=None
        )
        accounts.add(session, account)
        _tell(session, account, "account.created", now_s, actor, {"kind": account.kind})
    accounts.set_disabled(session, account.account_id, None)
    _give(session, account, Grant(Role.ADMIN, SHARED_PROJECT), now_s, actor)
    return account


def _check_grant(principal: Principal, grant: Grant) -> None:
    if not grant.is_possible:
        raise InvalidInputError(
            f"role: {grant.role.value} is no role in {grant.project}: expected "
            + (
                "admin, viewer or agent"
                if grant.project == SHARED_PROJECT
                else "project-admin, submitter or viewer"
            ),
            errors=(
                FieldError("/role", "expected a role that goes with the project", value=grant.role.value),
            ),
        )
    if not principal.grant.covers(grant):
        raise ForbiddenError(
            f"role: {grant.role.value} in {grant.project} is more than this token may do itself "
            f"({principal.role.value} in {principal.project})"
        )


def _give(session: Session, account: AccountRecord, grant: Grant, now_s: float, actor: str) -> None:
    held = {each.project: each.role for each in _roles(session, account)}
    if held.get(grant.project) == grant.role:
        return
    if grant.project != SHARED_PROJECT:
        access.ensure_project(session, grant.project, now_s)
    accounts.put_role(session, RoleRecord(account.account_id, grant.project, grant.role.value))
    data = {"project": grant.project, "role": grant.role.value}
    _tell(session, account, "account.role", now_s, actor, data, grant.project)


def _named(session: Session, name: str) -> AccountRecord:
    account = accounts.named(session, name)
    if account is None:
        raise _unknown(name)
    return account


def _unknown(name: str) -> NotFoundError:
    return NotFoundError(f"there is no account {name[:64]}: `bace account list` shows those you see")


def _roles(session: Session, account: AccountRecord) -> list[RoleRecord]:
    return accounts.roles_of(session, [account.account_id]).get(account.account_id, [])


def _shown(session: Session, principal: Principal, account: AccountRecord) -> AccountView:
    return _view(principal, account, _roles(session, account))


def _view(principal: Principal, account: AccountRecord, roles: list[RoleRecord]) -> AccountView:
    """Without the roles that it holds in projects which the caller does not see."""
    return AccountView(account, tuple(held for held in roles if principal.scope.covers(held.project)))


def _tell(
    session: Session,
    account: AccountRecord,
    kind: str,
    at_s: float,
    actor: str,
    data: dict[str, Any],
    project: str | None = None,
) -> None:
    events.append(
        session,
        project=account.project if project is None else project,
        at_s=at_s,
        kind=kind,
        object_kind="account",
        object_id=account.account_id,
        actor=actor,
        data={"name": account.name, **data},
    )
