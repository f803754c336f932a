"""Projects, tokens and idempotency keys."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import cast

from sqlalchemy import Table, bindparam, func, or_, select, true, update

from service.db.reader import Reader
from service.db.records import AccountRecord, IdempotencyRecord, ProjectRecord, RoleRecord, TokenRecord
from service.db.scope import Scope, changed
from service.db.session import Session
from service.db.tables import AccountRow, IdempotencyRow, ProjectRow, RoleRow, TokenRow

_projects = Reader(ProjectRecord, ProjectRow)
_tokens = Reader(TokenRecord, TokenRow)
_idempotency = Reader(IdempotencyRecord, IdempotencyRow)
_TOKENS = cast("Table", TokenRow.__table__)
_accounts = Reader(AccountRecord, AccountRow)
_roles = Reader(RoleRecord, RoleRow)
# Of every caller, every few seconds: one statement, a row for each role.
_SHOWN = (
    select(*_tokens.columns, *_accounts.columns, *_roles.columns)
    .join_from(TokenRow, AccountRow, AccountRow.account_id == TokenRow.account_id)
    .outerjoin(RoleRow, RoleRow.account_id == AccountRow.account_id)
    .where(or_(TokenRow.sha256 == bindparam("shown"), TokenRow.previous_sha256 == bindparam("shown")))
    .order_by(RoleRow.project)
)
_OF_AGENT = _tokens.select(TokenRow.agent_id == bindparam("agent"), TokenRow.revoked_at_s.is_(None)).order_by(
    TokenRow.created_at_s, TokenRow.token_id
)
_SECRET = ("sha256", "prefix", "expires_at_s", "previous_sha256", "previous_until_s", "rotated_at_s")
"""Columns that a rotation writes."""
_ROTATE = (
    update(_TOKENS)
    .where(
        TokenRow.token_id == bindparam("token"),
        TokenRow.sha256 == bindparam("shown"),
        TokenRow.revoked_at_s.is_(None),
    )
    .values({name: bindparam(f"new_{name}") for name in _SECRET})
)
_END_PREVIOUS = (
    update(_TOKENS)
    .where(TokenRow.token_id == bindparam("token"), TokenRow.sha256 == bindparam("newest"))
    .values(previous_sha256=None, previous_until_s=None)
)
_CLAIM = update(_TOKENS).where(TokenRow.token_id == bindparam("token")).values(agent_id=bindparam("agent"))
_REVOKE = (
    update(_TOKENS)
    .where(TokenRow.token_id == bindparam("token"), TokenRow.revoked_at_s.is_(None))
    .values(revoked_at_s=bindparam("now_s"))
)
_SHARES = (
    select(ProjectRow.project, ProjectRow.share)
    .where(ProjectRow.share.is_not(None))
    .order_by(ProjectRow.project)
)
# Of several projects it finds a few too many.
_TAKEN = select(IdempotencyRow.project, IdempotencyRow.key).where(
    IdempotencyRow.project.in_(bindparam("projects", expanding=True)),
    IdempotencyRow.key.in_(bindparam("keys", expanding=True)),
)


def projects(session: Session, scope: Scope) -> list[ProjectRecord]:
    return _projects.all(session, scope.of(ProjectRow.project), order_by=[ProjectRow.project])


def ensure_project(session: Session, project: str, now_s: float) -> bool:
    """True if it was made now."""
    return _projects.add_unless_there(session, ProjectRecord(project, now_s, share=None))


def change_share(session: Session, project: str, share: float | None) -> None:
    session.execute(update(ProjectRow).where(ProjectRow.project == project).values(share=share))


def share(session: Session, project: str) -> float | None:
    return session.scalar(select(ProjectRow.share).where(ProjectRow.project == project))


def shares(session: Session) -> dict[str, float]:
    """Of the projects that have one."""
    found = session.execute(_SHARES)
    return {project: share for project, share in found if share is not None}


def add_token(session: Session, record: TokenRecord) -> None:
    _tokens.add(session, record)


def tokens(session: Session, scope: Scope) -> list[TokenRecord]:
    return _tokens.all(
        session, scope.of(TokenRow.project), order_by=[TokenRow.created_at_s, TokenRow.token_id]
    )


def token(session: Session, scope: Scope, token_id: str) -> TokenRecord | None:
    found = _tokens.get(session, token_id)
    return found if found is not None and scope.covers(found.project) else None


@dataclass(frozen=True, slots=True)
class Shown:
    """A token, the account that it belongs to, and the roles that this holds."""

    token: TokenRecord
    account: AccountRecord
    roles: tuple[RoleRecord, ...]


def shown(session: Session, sha256: str) -> Shown | None:
    """The token of which this is the secret, or was before its last rotation."""
    rows = session.execute(_SHOWN, {"shown": sha256}).all()
    if not rows:
        return None
    of_account, of_role = len(_tokens.columns), len(_tokens.columns) + len(_accounts.columns)
    first = rows[0]
    return Shown(
        TokenRecord(*first[:of_account]),
        AccountRecord(*first[of_account:of_role]),
        tuple(RoleRecord(*row[of_role:]) for row in rows if row[of_role] is not None),
    )


def live_tokens(session: Session, account_id: str, now_s: float) -> int:
    """Tokens of an account, other than agents', that have not ended."""
    statement = (
        select(func.count())
        .select_from(TokenRow)
        .where(
            TokenRow.account_id == account_id,
            TokenRow.role != "agent",
            TokenRow.revoked_at_s.is_(None),
            func.coalesce(TokenRow.expires_at_s, now_s + 1) > now_s,
        )
    )
    return session.scalar(statement) or 0


def usable_tokens(session: Session, now_s: float, role: str | None = None) -> int:
    """Tokens that open anything now; of one role."""
    statement = (
        select(func.count())
        .select_from(TokenRow)
        .join(AccountRow, AccountRow.account_id == TokenRow.account_id)
        .where(
            AccountRow.disabled_at_s.is_(None),
            TokenRow.revoked_at_s.is_(None),
            func.coalesce(TokenRow.expires_at_s, now_s + 1) > now_s,
            true() if role is None else TokenRow.role == role,
        )
    )
    return session.scalar(statement) or 0


def rotate_token(session: Session, before: TokenRecord, after: TokenRecord) -> bool:
    """Give a token another secret; False if somebody else has done so, or has revoked it."""
    secret = {f"new_{name}": getattr(after, name) for name in _SECRET}
    return changed(session.execute(_ROTATE, {"token": before.token_id, "shown": before.sha256, **secret}))


def end_previous(session: Session, token_id: str, newest_sha256: str) -> None:
    """The secret before the newest opens nothing any more; nothing happens where the newest is another."""
    session.execute(_END_PREVIOUS, {"token": token_id, "newest": newest_sha256})


def tokens_of_agent(session: Session, agent_id: str) -> list[TokenRecord]:
    """Its identities, and what it has joined with, as far as they are not revoked."""
    return _tokens.fetch(session, _OF_AGENT, {"agent": agent_id})


def claim_token(session: Session, token_id: str, agent_id: str) -> None:
    """A token for single use is that agent's from now on."""
    session.execute(_CLAIM, {"token": token_id, "agent": agent_id})


def were_used(session: Session, token_ids: Collection[str], at_s: float) -> None:
    """Note when tokens were used last."""
    session.execute(update(TokenRow).where(TokenRow.token_id.in_(token_ids)).values(last_used_at_s=at_s))


def revoke_token(session: Session, token_id: str, now_s: float) -> bool:
    """False if it was revoked before."""
    return changed(session.execute(_REVOKE, {"token": token_id, "now_s": now_s}))


def answered_before(session: Session, project: str, key: str) -> IdempotencyRecord | None:
    return _idempotency.get(session, project, key)


def remember_answers(session: Session, records: Sequence[IdempotencyRecord]) -> list[bool]:
    """False for one whose key was taken before, by a stored one or by one in front of it."""
    wanted = {
        "projects": sorted({record.project for record in records}),
        "keys": sorted({record.key for record in records}),
    }
    taken = {(project, key) for project, key in session.execute(_TAKEN, wanted)}
    answers, new = [], []
    for record in records:
        is_new = (record.project, record.key) not in taken
        answers.append(is_new)
        if is_new:
            taken.add((record.project, record.key))
            new.append(record)
    if new:
        _idempotency.add(session, *new)
    return answers
