"""Projects, tokens and idempotency keys."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sqlalchemy import bindparam, func, or_, select, true, update
from sqlalchemy.orm import Session

from service.db.reader import Reader
from service.db.records import IdempotencyRecord, ProjectRecord, TokenRecord
from service.db.scope import Scope, changed
from service.db.tables import AccountRow, IdempotencyRow, ProjectRow, TokenRow

_projects = Reader(ProjectRecord, ProjectRow)
_tokens = Reader(TokenRecord, TokenRow)
_idempotency = Reader(IdempotencyRecord, IdempotencyRow)
_WITH_HASH = _tokens.select(
    or_(TokenRow.sha256 == bindparam("shown"), TokenRow.previous_sha256 == bindparam("shown"))
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
    found = session.connection().execute(_SHARES)
    return {project: share for project, share in found if share is not None}


def add_token(session: Session, record: TokenRecord) -> None:
    _tokens.add(session, record)


def tokens(session: Session, scope: Scope) -> list[TokenRecord]:
    return _tokens.all(
        session, scope.of(TokenRow.project), order_by=[TokenRow.created_at_s, TokenRow.token_id]
    )


def token(session: Session, scope: Scope, token_id: str) -> TokenRecord | None:
    return _tokens.first(session, TokenRow.token_id == token_id, scope.of(TokenRow.project))


def token_by_hash(session: Session, sha256: str) -> TokenRecord | None:
    """The token of which this is the secret, or was before its last rotation."""
    found = _tokens.fetch(session, _WITH_HASH, {"shown": sha256})
    return found[0] if found else None


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
    return changed(
        session.execute(
            update(TokenRow)
            .where(
                TokenRow.token_id == before.token_id,
                TokenRow.sha256 == before.sha256,
                TokenRow.revoked_at_s.is_(None),
            )
            .values(
                sha256=after.sha256,
                prefix=after.prefix,
                expires_at_s=after.expires_at_s,
                previous_sha256=after.previous_sha256,
                previous_until_s=after.previous_until_s,
                rotated_at_s=after.rotated_at_s,
            )
        )
    )


def tokens_of_agent(session: Session, agent_id: str) -> list[TokenRecord]:
    """Its identity, and what it has joined with, as far as they are not revoked."""
    return _tokens.all(
        session,
        TokenRow.agent_id == agent_id,
        TokenRow.revoked_at_s.is_(None),
        order_by=[TokenRow.created_at_s, TokenRow.token_id],
    )


def claim_token(session: Session, token_id: str, agent_id: str) -> None:
    """A token for single use is that agent's from now on."""
    session.execute(update(TokenRow).where(TokenRow.token_id == token_id).values(agent_id=agent_id))


def were_used(session: Session, token_ids: Collection[str], at_s: float) -> None:
    """Note when tokens were used last."""
    session.execute(update(TokenRow).where(TokenRow.token_id.in_(token_ids)).values(last_used_at_s=at_s))


def revoke_token(session: Session, token_id: str, now_s: float) -> bool:
    """False if it was revoked before."""
    return changed(
        session.execute(
            update(TokenRow)
            .where(TokenRow.token_id == token_id, TokenRow.revoked_at_s.is_(None))
            .values(revoked_at_s=now_s)
        )
    )


def answered_before(session: Session, project: str, key: str) -> IdempotencyRecord | None:
    return _idempotency.first(session, IdempotencyRow.project == project, IdempotencyRow.key == key)


def remember_answers(session: Session, records: Sequence[IdempotencyRecord]) -> list[bool]:
    """False for one whose key was taken before, by a stored one or by one in front of it."""
    wanted = {
        "projects": sorted({record.project for record in records}),
        "keys": sorted({record.key for record in records}),
    }
    taken = {(project, key) for project, key in session.connection().execute(_TAKEN, wanted)}
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
