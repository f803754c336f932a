"""What may be there once is there once, and whoever comes second is told so, on both databases."""

from __future__ import annotations

from dataclasses import replace

from sqlalchemy import Engine

from service.db.engine import Mode
from service.db.group import transact_group
from service.db.records import AccountRecord, IdempotencyRecord
from service.db.repositories import access, accounts
from service.db.session import Session
from service.db.transaction import transact

CLAIM = IdempotencyRecord("nlp", "key", "print", "job-1", 1.0)


def claim(session: Session) -> bool:
    return access.remember_answers(session, [CLAIM])[0]


def test_a_key_is_claimed_once(engine: Engine) -> None:
    assert [transact(engine, Mode.WRITE, claim)[0] for _ in range(3)] == [True, False, False]


def test_a_key_is_claimed_once_among_those_who_share_a_commit(engine: Engine) -> None:
    assert [outcome.result for outcome in transact_group(engine, [claim] * 3)] == [True, False, False]


def test_a_key_is_claimed_once_among_those_that_are_claimed_together(engine: Engine) -> None:
    other = replace(CLAIM, project="vision")

    def claims(session: Session) -> list[bool]:
        return access.remember_answers(session, [CLAIM, other, CLAIM, replace(CLAIM, key="another")])

    assert transact(engine, Mode.WRITE, claims)[0] == [True, True, False, True]
    assert transact(engine, Mode.WRITE, claims)[0] == [False] * 4


def test_a_project_and_a_name_are_made_once(engine: Engine) -> None:
    def project(session: Session) -> bool:
        return access.ensure_project(session, "nlp", 1.0)

    def account(session: Session) -> bool:
        record = AccountRecord(f"account-{next(numbers)}", "*", "ada", "user", 1.0, None)
        return accounts.add(session, record)

    numbers = iter(range(10))
    for work in (project, account):
        assert [transact(engine, Mode.WRITE, work)[0] for _ in range(2)] == [True, False]
