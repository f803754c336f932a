"""Accounts and their roles."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection

from sqlalchemy import ColumnElement, bindparam, delete, func, or_, select, true, update

from service.db.reader import Reader
from service.db.records import AccountRecord, RoleRecord
from service.db.scope import Scope, changed
from service.db.session import Session
from service.db.tables import AccountRow, RoleRow
from service.db.upsert import insert_of

_accounts = Reader(AccountRecord, AccountRow)
_roles = Reader(RoleRecord, RoleRow)
# Every time a token is looked at again.
_ROLES_OF = _roles.select(RoleRow.account_id.in_(bindparam("accounts", expanding=True))).order_by(
    RoleRow.account_id, RoleRow.project
)


def visible(session: Session, scope: Scope) -> list[AccountRecord]:
    """Those that belong to a project of the scope or have a role in it, by name."""
    return _accounts.all(session, _concerns(scope), order_by=[AccountRow.name])


def count_of_project(session: Session, project: str) -> int:
    """How many belong to it."""
    return session.scalar(select(func.count()).where(AccountRow.project == project)) or 0


def named(session: Session, name: str) -> AccountRecord | None:
    return _accounts.first(session, AccountRow.name == name)


def get(session: Session, account_id: str) -> AccountRecord | None:
    return _accounts.get(session, account_id)


def add(session: Session, record: AccountRecord) -> bool:
    """False if the name is taken."""
    return _accounts.add_unless_there(session, record)


def set_disabled(session: Session, account_id: str, at_s: float | None) -> bool:
    """False if it is so already."""
    there = AccountRow.disabled_at_s.is_(None) if at_s is not None else AccountRow.disabled_at_s.is_not(None)
    statement = update(AccountRow).where(AccountRow.account_id == account_id, there)
    return changed(session.execute(statement.values(disabled_at_s=at_s)))


def roles_of(session: Session, account_ids: Collection[str]) -> dict[str, list[RoleRecord]]:
    """By account, in the order of projects; an account without any is left out."""
    found: dict[str, list[RoleRecord]] = defaultdict(list)
    for role in _roles.fetch(session, _ROLES_OF, {"accounts": list(account_ids)}):
        found[role.account_id].append(role)
    return dict(found)


def put_role(session: Session, record: RoleRecord) -> None:
    """One role in a project; it takes the place of another."""
    values = {"account_id": record.account_id, "project": record.project, "role": record.role}
    statement = insert_of(session.dialect, RoleRow.__table__).values(**values)
    session.execute(
        statement.on_conflict_do_update(index_elements=["account_id", "project"], set_={"role": record.role})
    )


def drop_role(session: Session, account_id: str, project: str) -> None:
    session.execute(delete(RoleRow).where(RoleRow.account_id == account_id, RoleRow.project == project))


def _concerns(scope: Scope) -> ColumnElement[bool]:
    if scope.project is None:
        return true()
    members = select(RoleRow.account_id).where(scope.of(RoleRow.project))
    return or_(scope.of(AccountRow.project), AccountRow.account_id.in_(members))
