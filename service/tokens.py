"""Bearer tokens: made, shown once, listed, given another secret, revoked."""

from __future__ import annotations

from dataclasses import dataclass, replace

from service import limits
from service.access import AccountKind, Grant, Principal, Role, any_covers, sha256_of
from service.accounts import find as find_account
from service.accounts import grants_of, make_administrator
from service.authentication import Authenticator
from service.db.records import AccountRecord, TokenRecord
from service.db.repositories import access, accounts, events
from service.db.session import Session
from service.db.tables import SHARED_PROJECT
from service.errors import (
    ConflictError,
    FieldError,
    ForbiddenError,
    InvalidInputError,
    NotFoundError,
)
from service.services import Services
from service.settings import Settings

PREFIX = "bace_"
SHOWN_CHARACTERS = 10
BOOTSTRAP_ACTOR = "server"


@dataclass(frozen=True, slots=True)
class NewToken:
    """A token that was just made or rotated, with its text."""

    record: TokenRecord
    account: str
    text: str


@dataclass(frozen=True, slots=True)
class TokenView:
    """A token and the name of its account."""

    record: TokenRecord
    account: str


@dataclass(frozen=True, slots=True)
class TokenRequest:
    """What is asked for. `project` belongs to a submitter or project administrator, and may belong to a viewer.

    `account` is a name; None: the caller's own. Without `expires_in_s` the lifetime is that of the settings;
    `never_expires` is for administrators to ask.
    """

    name: str
    role: Role
    project: str | None = None
    expires_in_s: float | None = None
    account: str | None = None
    never_expires: bool = False

    @property
    def grant(self) -> Grant:
        return Grant(self.role, self.project or SHARED_PROJECT)


async def create(services: Services, principal: Principal, request: TokenRequest) -> NewToken:
    """Makes a token of an account, for one of the account's roles or less.

    Raises InvalidInputError where the project does not go with the role or the account lacks it, ForbiddenError for
    more than the caller may do, NotFoundError for an account that the caller does not see.
    """
    _check_project(request)
    if not principal.grant.covers(request.grant):
        raise ForbiddenError(
            f"role: {request.role.value} in {request.grant.project} is more than this token may do itself "
            f"({principal.role.value} in {principal.project})"
        )
    if request.never_expires and principal.role is not Role.ADMIN:
        raise ForbiddenError("never_expires: only an administrator may ask for that; give expires_in_s")
    _check_lifetime(services.settings, principal, request.expires_in_s)
    text, now_s = PREFIX + services.ids.secret(), services.clock.now()
    token_id = services.ids.new("token")

    def work(session: Session) -> NewToken:
        account = _account(session, principal, request.account)
        if not any_covers(grants_of(session, account.account_id), request.grant):
            raise InvalidInputError(
                f"role: account {account.name} does not hold {request.role.value} in {request.grant.project}: "
                "grant it first (`bace account grant`)",
                errors=(FieldError("/role", "expected a role that the account holds", value=request.role),),
            )
        live = access.live_tokens(session, account.account_id, now_s)
        if request.role is not Role.AGENT and live >= limits.MAX_LIVE_TOKENS:
            raise ConflictError(
                f"account {account.name} has {limits.MAX_LIVE_TOKENS} tokens already: revoke some that nobody uses "
                "(`bace token list` tells when each was used last)"
            )
        record = _new_token(services.settings, request, account, token_id, text, now_s)
        if record.project != SHARED_PROJECT:
            access.ensure_project(session, record.project, now_s)
        access.add_token(session, record)
        _tell(session, record, account, "token.created", now_s, principal.token_id)
        return NewToken(record, account.name, text)

    return await services.db.run(work)


async def bootstrap(services: Services) -> NewToken | None:
    """The first administrator's account and token; None where an administrator has any usable token."""
    text, now_s = PREFIX + services.ids.secret(), services.clock.now()
    token_id, account_id = services.ids.new("token"), services.ids.new("account")

    def work(session: Session) -> NewToken | None:
        if access.usable_tokens(session, now_s, Role.ADMIN):
            return None
        account = make_administrator(session, account_id, now_s, BOOTSTRAP_ACTOR)
        request = TokenRequest("first administrator", Role.ADMIN, never_expires=True)
        record = _new_token(services.settings, request, account, token_id, text, now_s)
        access.add_token(session, record)
        _tell(session, record, account, "token.created", now_s, BOOTSTRAP_ACTOR)
        return NewToken(record, account.name, text)

    return await services.db.run(work)


async def list_all(services: Services, principal: Principal) -> list[TokenView]:
    """Revoked ones included."""

    def work(session: Session) -> list[TokenView]:
        found = access.tokens(session, principal.scope)
        names = {record.account_id: "" for record in found}
        names |= {account_id: _name_of(session, account_id) for account_id in names}
        return [TokenView(record, names[record.account_id]) for record in found]

    return await services.db.read(work)


async def rotate(
    services: Services,
    authenticator: Authenticator,
    principal: Principal,
    token_id: str,
    *,
    overlap_s: float,
    expires_in_s: float | None,
) -> NewToken:
    """Gives a token a new secret; the one before stays valid for `overlap_s`, unless the token ends sooner.

    It lives as long again as it was made for, or `expires_in_s`. Everybody may rotate the token that they show,
    administrators also others of theirs. Raises NotFoundError, ConflictError for one that has ended, ForbiddenError for
    a longer life than the caller may ask for.
    """
    _check_lifetime(services.settings, principal, expires_in_s)
    text, now_s = PREFIX + services.ids.secret(), services.clock.now()

    def work(session: Session) -> tuple[TokenRecord, NewToken]:
        record = _visible(session, principal, token_id)
        if record.revoked_at_s is not None or (record.expires_at_s or now_s + 1) <= now_s:
            raise ConflictError(f"token {token_id} has ended: make a new one with `bace token create`")
        until_s = now_s + overlap_s
        made = replace(
            record,
            sha256=sha256_of(text),
            prefix=text[:SHOWN_CHARACTERS],
            expires_at_s=_renewed(record, now_s, expires_in_s),
            previous_sha256=record.sha256 if overlap_s > 0 else None,
            previous_until_s=min(until_s, record.expires_at_s or until_s) if overlap_s > 0 else None,
            rotated_at_s=now_s,
        )
        if not access.rotate_token(session, record, made):
            raise ConflictError(f"token {token_id} was rotated or revoked meanwhile: look again")
        account = accounts.get(session, record.account_id)
        if account is None:
            raise NotFoundError(f"token {token_id} has no account any more")
        _tell(session, made, account, "token.rotated", now_s, principal.token_id)
        return record, NewToken(made, account.name, text)

    before, made = await services.db.run(work)
    authenticator.forget_token(before)
    return made


async def revoke(
    services: Services, authenticator: Authenticator, principal: Principal, token_id: str
) -> TokenView:
    """Ends a token, now and for ever; again changes nothing. Raises NotFoundError."""
    now_s = services.clock.now()

    def work(session: Session) -> TokenView:
        record = _visible(session, principal, token_id)
        account = accounts.get(session, record.account_id)
        if account is not None and access.revoke_token(session, token_id, now_s):
            _tell(session, record, account, "token.revoked", now_s, principal.token_id)
        return TokenView(
            access.token(session, principal.scope, token_id) or record, account.name if account else ""
        )

    view = await services.db.run(work)
    authenticator.forget_token(view.record)
    return view


def _visible(session: Session, principal: Principal, token_id: str) -> TokenRecord:
    record = access.token(session, principal.scope, token_id)
    administers = principal.role in (Role.ADMIN, Role.PROJECT_ADMIN)
    if record is None or not (administers or record.token_id == principal.token_id):
        raise NotFoundError(f"there is no token {token_id[:64]}: `bace token list` shows them")
    return record


def _account(session: Session, principal: Principal, name: str | None) -> AccountRecord:
    if name is not None:
        return find_account(session, principal, name)
    own = accounts.get(session, principal.account_id)
    if own is None:
        raise NotFoundError(f"account {principal.account} is gone")
    return own


def _new_token(
    settings: Settings, request: TokenRequest, account: AccountRecord, token_id: str, text: str, now_s: float
) -> TokenRecord:
    lifetime_s = _lifetime_s(settings, request, account)
    return TokenRecord(
        token_id=token_id,
        account_id=account.account_id,
        project=request.grant.project,
        name=request.name,
        role=request.role.value,
        prefix=text[:SHOWN_CHARACTERS],
        sha256=sha256_of(text),
        created_at_s=now_s,
        expires_at_s=None if lifetime_s is None else now_s + lifetime_s,
        revoked_at_s=None,
    )


def _lifetime_s(settings: Settings, request: TokenRequest, account: AccountRecord) -> float | None:
    """Agents run for years under one token; whatever a person or a program uses has an end."""
    if request.never_expires:
        return None
    if request.expires_in_s is not None:
        return request.expires_in_s
    if request.role is Role.AGENT:
        return None
    is_user = account.kind == AccountKind.USER
    return settings.token_lifetime_s if is_user else settings.service_token_lifetime_s


def _check_lifetime(settings: Settings, principal: Principal, expires_in_s: float | None) -> None:
    """A life of three hundred years is none that ends."""
    most_s = max(settings.token_lifetime_s, settings.service_token_lifetime_s)
    if expires_in_s is not None and expires_in_s > most_s and principal.role is not Role.ADMIN:
        raise ForbiddenError(
            f"expires_in_s: only an administrator may ask for more than {most_s:g} (BACE_SERVICE_TOKEN_LIFETIME_S)"
        )


def _renewed(record: TokenRecord, now_s: float, expires_in_s: float | None) -> float | None:
    if expires_in_s is not None:
        return now_s + expires_in_s
    if record.expires_at_s is None:
        return None
    return now_s + record.expires_at_s - (record.rotated_at_s or record.created_at_s)


def _check_project(request: TokenRequest) -> None:
    if request.never_expires and request.expires_in_s is not None:
        detail = "expected either never_expires or expires_in_s"
        raise InvalidInputError(
            f"never_expires: {detail}", errors=(FieldError("/never_expires", detail, value=True),)
        )
    if request.grant.is_possible:
        return
    if request.project is None:
        expected = f"expected a project: a {request.role.value} is one in a project"
    else:
        expected = f"expected no project: an {request.role.value} stands above them"
    raise InvalidInputError(
        f"project: {expected}", errors=(FieldError("/project", expected, value=request.project),)
    )


def _name_of(session: Session, account_id: str) -> str:
    account = accounts.get(session, account_id)
    return account.name if account else ""


def _tell(
    session: Session, record: TokenRecord, account: AccountRecord, kind: str, at_s: float, actor: str
) -> None:
    events.append(
        session,
        project=record.project,
        at_s=at_s,
        kind=kind,
        object_kind="token",
        object_id=record.token_id,
        actor=actor,
        data={"name": record.name, "role": record.role, "account": account.name},
    )
