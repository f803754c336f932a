"""Writes that wait share a commit, and nothing else: each is whole or not at all, whatever becomes of the others."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable

import pytest
from sqlalchemy import Connection, Engine, event, func, select
from sqlalchemy.exc import IntegrityError, OperationalError

from service import limits
from service.adapters import database
from service.adapters.database import ThreadPoolDb
from service.adapters.local_bus import LocalBus
from service.db.engine import Mode
from service.db.group import transact_group
from service.db.records import ProjectRecord
from service.db.repositories import access, events
from service.db.scope import EVERYTHING
from service.db.session import Session
from service.db.tables import ProjectRow
from service.db.transaction import transact
from service.errors import UnavailableError

PATIENCE_S = 20


def _add(name: str) -> Callable[[Session], str]:
    def work(session: Session) -> str:
        access.ensure_project(session, name, 0.0)
        events.append(session, project="*", at_s=0.0, kind="test", object_kind="test", object_id=name)
        return name

    return work


def _fail_after(name: str) -> Callable[[Session], str]:
    def work(session: Session) -> str:
        _add(name)(session)
        raise ValueError(name)

    return work


def _stored(engine: Engine) -> tuple[list[str], list[str]]:
    def work(session: Session) -> tuple[list[str], list[str]]:
        names = [record.project for record in access.projects(session, EVERYTHING)]
        return names, [each.object_id for each in events.after(session, EVERYTHING, 0, 1000)]

    return transact(engine, Mode.READ, work)[0]


def test_one_that_fails_takes_back_its_own_writes_and_no_others(engine: Engine) -> None:
    def twice(session: Session) -> None:
        for _ in range(2):
            access._projects.add(session, ProjectRecord("twice", 0.0, None))

    outcomes = transact_group(engine, [_add("a"), _fail_after("b"), twice, _add("c")])
    assert [outcome.result for outcome in outcomes] == ["a", None, None, "c"]
    assert isinstance(outcomes[1].error, ValueError)
    assert isinstance(outcomes[2].error, IntegrityError)
    assert [outcome.wrote_events for outcome in outcomes] == [True, False, False, True]
    assert _stored(engine) == (["a", "c"], ["a", "c"])


def test_a_unit_sees_what_those_before_it_have_stored(engine: Engine) -> None:
    def count(session: Session) -> int:
        return session.scalar(select(func.count()).select_from(ProjectRow)) or 0

    outcomes = transact_group(engine, [count, _add("a"), count, _fail_after("b"), count])
    assert [outcome.result for outcome in outcomes] == [0, "a", 1, None, 1]


def test_a_group_that_cannot_be_committed_is_stored_one_by_one(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit, failed = Connection.commit, []

    def once_not(connection: Connection) -> None:
        if not failed:
            failed.append(True)
            raise OperationalError("COMMIT", {}, Exception("disk on fire"))
        commit(connection)

    monkeypatch.setattr(Connection, "commit", once_not)
    outcomes = transact_group(engine, [_add("a"), _fail_after("b"), _add("c")])
    assert failed
    assert [outcome.result for outcome in outcomes] == ["a", None, "c"]
    assert _stored(engine) == (["a", "c"], ["a", "c"])


def test_one_that_meets_a_full_disk_is_refused_for_now_and_the_others_are_stored(engine: Engine) -> None:
    def too_large(session: Session) -> None:
        _add("large")(session)
        raise OperationalError("INSERT", {}, sqlite3.OperationalError("database or disk is full"))

    outcomes = transact_group(engine, [_add("a"), too_large, _add("c")])
    assert [outcome.result for outcome in outcomes] == ["a", None, "c"]
    assert isinstance(outcomes[1].error, UnavailableError)
    assert _stored(engine) == (["a", "c"], ["a", "c"])


async def test_whatever_waits_for_the_writer_shares_the_next_commit(engine: Engine) -> None:
    commits: list[int] = []
    event.listen(engine, "commit", lambda _: commits.append(1))
    db, gate = ThreadPoolDb(engine, LocalBus(), threads=1), threading.Event()
    slow = asyncio.ensure_future(db.run(lambda _: gate.wait(PATIENCE_S)))
    await asyncio.sleep(0)
    waiting = [asyncio.ensure_future(db.run(_add(f"p{number:02d}"))) for number in range(20)]
    failing = asyncio.ensure_future(db.run(_fail_after("q")))
    leaving = asyncio.ensure_future(db.run(_add("left")))
    await asyncio.sleep(0)
    leaving.cancel()
    gate.set()
    assert await slow
    assert await asyncio.gather(*waiting) == [f"p{number:02d}" for number in range(20)]
    with pytest.raises(ValueError, match="q"):
        await failing
    db.close()
    names, told = _stored(engine)
    assert set(told) == set(names) == {f"p{number:02d}" for number in range(20)} | {"left"}
    # SQLAlchemy tells of commits of readers, too: the slow one's, the group's, and that of `_stored`.
    assert len(commits) <= 4, "each of them waited for the disk"


async def test_more_waiting_writes_than_may_be_are_refused_at_once(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "MAX_WAITING_WRITES", 3)
    assert limits.MAX_WAITING_WRITES > 1000, "a thousand cancellations at once find their place"
    db, gate = ThreadPoolDb(engine, LocalBus(), threads=1), threading.Event()
    slow = asyncio.ensure_future(db.run(lambda _: gate.wait(PATIENCE_S)))
    await asyncio.sleep(0)
    waiting = [asyncio.ensure_future(db.run(_add(name))) for name in ("a", "b", "c")]
    await asyncio.sleep(0)
    with pytest.raises(UnavailableError, match="try again"):
        await db.run(_add("d"))
    gate.set()
    await asyncio.gather(slow, *waiting)
    db.close()
    assert _stored(engine)[0] == ["a", "b", "c"]
