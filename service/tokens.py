"""Bearer tokens: made, shown once, listed, revoked, and recognised."""

from __future__ import annotations

import hmac
from dataclasses import dataclass

from sqlalchemy.orm import Session

from service import limits
from service.access import Principal, Role, sha256_of
from service.db.records import TokenRecord
from service.db.repositories import access, events
from service.db.tables import SHARED_PROJECT
from service.errors import FieldError, InvalidInputError, NotFoundError, UnauthenticatedError
from service.services import Services

PREFIX = "bace_"
SHOWN_CHARACTERS = 10
BOOTSTRAP_ACTOR = "server"
_UNKNOWN = "the bearer token is unknown, expired or revoked"


@dataclass(frozen=True, slots=True)
class NewToken:
    """A token that was just made, with its text."""

    record: TokenRecord
    text: str


@dataclass(frozen=True, slots=True)
class TokenRequest:
    """What is asked for. `project` belongs to a submitter and may belong to a viewer."""

    name: str
    role: Role
    project: str | None = None
    expires_in_s: float | None = None


class Authenticator:
    """Recognises tokens, and remembers for `limits.TOKEN_CACHE_S` which ones are good."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._known: dict[str, tuple[float, TokenRecord]] = {}

    async def recognise(self, text: str) -> Principal:
        """Raises UnauthenticatedError for a token that opens nothing."""
        return await self.check(sha256_of(text))

    async def check(self, sha256: str) -> Principal:
        """The same by the hash: streams ask again and again whether they may go on."""
        services = self._services
        record = await self._record(sha256)
        now_s = services.clock.now()
        if (
            record is None
            or not hmac.compare_digest(record.sha256, sha256)
            or record.revoked_at_s is not None
            or (record.expires_at_s is not None and record.expires_at_s <= now_s)
        ):
            raise UnauthenticatedError(_UNKNOWN)
        return Principal(record.token_id, record.name, Role(record.role), record.project, record.sha256)

    def forget(self, sha256: str) -> None:
        """Look into the database again: it was revoked here."""
        self._known.pop(sha256, None)

    async def _record(self, sha256: str) -> TokenRecord | None:
        now_s = self._services.clock.monotonic()
        known = self._known.get(sha256)
        if known is not None and now_s - known[0] < limits.TOKEN_CACHE_S:
            return known[1]
        record = await self._services.db.read(lambda session: access.token_by_hash(session, sha256))
        self._known = {
            key: value for key, value in self._known.items() if now_s - value[0] < limits.TOKEN_CACHE_S
        }
        if record is not None:
            self._known[sha256] = (now_s, record)
        return record


async def create(services: Services, actor: str, request: TokenRequest) -> NewToken:
    """Makes a token. Raises InvalidInputError where the project does not go with the role."""
    project = _project_for(request)
    text = PREFIX + services.ids.secret()
    now_s = services.clock.now()
    record = TokenRecord(
        token_id=services.ids.new("token"),
        project=project,
        name=request.name,
        role=request.role.value,
        prefix=text[:SHOWN_CHARACTERS],
        sha256=sha256_of(text),
        created_at_s=now_s,
        expires_at_s=None if request.expires_in_s is None else now_s + request.expires_in_s,
        revoked_at_s=None,
    )

    def work(session: Session) -> None:
        if project != SHARED_PROJECT:
            access.ensure_project(session, project, now_s)
        access.add_token(session, record)
        _tell(session, record, "token.created", now_s, actor)

    await services.db.run(work)
    return NewToken(record, text)


async def bootstrap(services: Services) -> NewToken | None:
    """The first administrator's token; None where any usable token exists."""
    now_s = services.clock.now()
    if await services.db.read(lambda session: access.usable_tokens(session, now_s)):
        return None
    return await create(services, BOOTSTRAP_ACTOR, TokenRequest("first administrator", Role.ADMIN))


async def list_all(services: Services, principal: Principal) -> list[TokenRecord]:
    """Revoked ones included."""
    return await services.db.read(lambda session: access.tokens(session, principal.scope))


async def revoke(
    services: Services, authenticator: Authenticator, principal: Principal, token_id: str
) -> TokenRecord:
    """Ends a token, now and for ever; again changes nothing. Raises NotFoundError."""
    now_s = services.clock.now()

    def work(session: Session) -> TokenRecord:
        record = access.token(session, principal.scope, token_id)
        if record is None:
            raise NotFoundError(f"there is no token {token_id[:64]}: `bace token list` shows them")
        if access.revoke_token(session, token_id, now_s):
            _tell(session, record, "token.revoked", now_s, principal.token_id)
        return access.token(session, principal.scope, token_id) or record

    record = await services.db.run(work)
    authenticator.forget(record.sha256)
    return record


def _project_for(request: TokenRequest) -> str:
    if request.role is Role.SUBMITTER and request.project is None:
        raise _wrong_project(request, "a project: a submitter's jobs belong to it")
    if request.role in (Role.ADMIN, Role.AGENT) and request.project is not None:
        raise _wrong_project(request, f"no project: an {request.role.value} stands above them")
    return request.project or SHARED_PROJECT


def _wrong_project(request: TokenRequest, expected: str) -> InvalidInputError:
    return InvalidInputError(
        f"project: expected {expected}",
        errors=(FieldError("/project", f"expected {expected}", value=request.project),),
    )


def _tell(session: Session, record: TokenRecord, kind: str, at_s: float, actor: str) -> None:
    events.append(
        session,
        project=record.project,
        at_s=at_s,
        kind=kind,
        object_kind="token",
        object_id=record.token_id,
        actor=actor,
        data={"name": record.name, "role": record.role},
    )
