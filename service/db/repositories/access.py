"""Projects, tokens and idempotency keys."""

from __future__ import annotations

from sqlalchemy import func, select, update
from sqlalchemy.orm import Session

from service.db.reader import Reader
from service.db.records import IdempotencyRecord, ProjectRecord, TokenRecord
from service.db.scope import Scope, changed
from service.db.tables import IdempotencyRow, ProjectRow, TokenRow

_projects = Reader(ProjectRecord, ProjectRow)
_tokens = Reader(TokenRecord, TokenRow)
_idempotency = Reader(IdempotencyRecord, IdempotencyRow)


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
    found = session.execute(
        select(ProjectRow.project, ProjectRow.share)
        .where(ProjectRow.share.is_not(None))
        .order_by(ProjectRow.project)
    )
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
    return _tokens.first(session, TokenRow.sha256 == sha256)


def usable_tokens(session: Session, now_s: float) -> int:
    """Tokens that open anything now."""
    statement = select(func.count()).where(
        TokenRow.revoked_at_s.is_(None),
        func.coalesce(TokenRow.expires_at_s, now_s + 1) > now_s,
    )
    return session.scalar(statement) or 0


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


def remember_answer(session: Session, record: IdempotencyRecord) -> bool:
    """False if the key was taken before."""
    return _idempotency.add_unless_there(session, record)
