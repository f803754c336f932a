"""What the unit of work promises: whole or not at all, a serial order, durable, events in the order of commits."""

from __future__ import annotations

import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
from sqlalchemy import Engine, func, select, text, update
from sqlalchemy.exc import OperationalError

from service.adapters.database import InlineDb, ThreadPoolDb
from service.adapters.local_bus import LocalBus
from service.db import transaction
from service.db.engine import Mode, make_engine
from service.db.repositories import access, events, leader
from service.db.scope import EVERYTHING
from service.db.session import Session
from service.db.tables import LeaderRow, ProjectRow
from service.db.transaction import transact
from service.errors import UnavailableError
from service.ports import Db
from tests.control_world import make_tables


def _projects(engine: Engine) -> int:
    counted, _ = transact(engine, Mode.READ, lambda s: s.scalar(select(func.count()).select_from(ProjectRow)))
    return counted or 0


def _tell(session: Session, name: str) -> None:
    events.append(session, project="*", at_s=0.0, kind="test", object_kind="test", object_id=name)


def test_a_transaction_is_committed_whole_or_not_at_all(engine: Engine) -> None:
    def work(session: Session) -> None:
        access.ensure_project(session, "nlp", 0.0)
        _tell(session, "lost")
        raise ValueError("in the middle")

    with pytest.raises(ValueError, match="in the middle"):
        transact(engine, Mode.WRITE, work)
    assert _projects(engine) == 0
    found, _ = transact(engine, Mode.READ, lambda session: events.after(session, EVERYTHING, 0, 10))
    assert found == []


def test_concurrent_read_modify_writes_lose_nothing(engine: Engine) -> None:
    def work(session: Session) -> None:
        seen = leader.get(session).snapshot_version
        session.execute(update(LeaderRow).values(snapshot_version=seen + 1))

    with ThreadPoolExecutor(3) as threads:
        list(threads.map(lambda _: transact(engine, Mode.WRITE, work), range(24)))
    found, _ = transact(engine, Mode.READ, leader.get)
    assert found.snapshot_version == 24


def test_a_reader_that_goes_on_after_the_last_event_misses_none(engine: Engine) -> None:
    """Numbers become visible in their order, although writers overlap."""
    writers, each = 3, 12
    done = threading.Event()
    seen: list[int] = []

    def add(session: Session, project: str) -> None:
        access.ensure_project(session, project, 0.0)
        _tell(session, project)

    def write(name: int) -> None:
        for number in range(each):
            transact(engine, Mode.WRITE, partial(add, project=f"p{name}-{number}"))

    def follow() -> None:
        while True:
            is_last_look = done.is_set()
            after = seen[-1] if seen else 0
            look = partial(events.after, scope=EVERYTHING, seq=after, limit=500)
            found, _ = transact(engine, Mode.READ, look)
            seen.extend(event.seq for event in found)
            if is_last_look and not found:
                return

    with ThreadPoolExecutor(writers + 1) as threads:
        reader = threads.submit(follow)
        list(threads.map(write, range(writers)))
        done.set()
        reader.result(60)
    assert len(seen) == writers * each
    assert seen == sorted(seen)


def test_a_read_sees_one_state_and_waits_for_no_writer(engine: Engine) -> None:
    def work(session: Session) -> tuple[int, int]:
        before = leader.get(session).snapshot_version
        transact(engine, Mode.WRITE, leader.capacity_changed)  # somebody else, in the middle of our reading
        return before, leader.get(session).snapshot_version

    (before, after), _ = transact(engine, Mode.READ, work)
    assert before == after
    assert transact(engine, Mode.READ, leader.get)[0].snapshot_version == before + 1


def test_a_busy_database_is_tried_again_within_a_bound(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transaction, "MAX_PAUSE_S", 0.0)
    attempts = 0

    def busy(session: Session) -> None:
        nonlocal attempts
        attempts += 1
        raise OperationalError("BEGIN", {}, sqlite3.OperationalError("database is locked"))

    with pytest.raises(UnavailableError, match="nothing was stored"):
        transact(engine, Mode.WRITE, busy)
    assert attempts == transaction.MAX_ATTEMPTS


def test_a_full_disk_refuses_for_now_and_stores_nothing(tmp_path: Path) -> None:
    engine = make_engine(f"sqlite:///{tmp_path / 'full.db'}")
    make_tables(engine)
    with engine.connect() as connection:
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()

    def grow(session: Session) -> None:
        session.connection.exec_driver_sql(f"PRAGMA max_page_count = {pages + 2}")
        for number in range(1000):
            access.ensure_project(session, f"p{number}" + "x" * 50, 0.0)

    with pytest.raises(UnavailableError, match="disk is full; nothing was stored"):
        transact(engine, Mode.WRITE, grow)
    found, _ = transact(engine, Mode.READ, lambda session: access.projects(session, EVERYTHING))
    assert found == []
    engine.dispose()


def test_a_database_that_is_away_is_told_so() -> None:
    engine = make_engine("postgresql+psycopg://nobody@127.0.0.1:1/none?connect_timeout=2")
    with pytest.raises(UnavailableError, match="cannot be reached"):
        transact(engine, Mode.READ, leader.get)
    missing = make_engine("sqlite:////nonexistent-folder/bace.db")
    with pytest.raises(UnavailableError, match="cannot be reached"):
        transact(missing, Mode.READ, leader.get)


def test_acknowledged_is_on_disk(engine: Engine) -> None:
    with engine.connect() as connection:
        if engine.dialect.name == "sqlite":
            assert connection.execute(text("PRAGMA journal_mode")).scalar() == "wal"
            assert connection.execute(text("PRAGMA synchronous")).scalar() == 2, (
                "FULL: a commit waits for the disk"
            )
            assert connection.execute(text("PRAGMA foreign_keys")).scalar() == 1
        else:
            assert connection.execute(text("SHOW fsync")).scalar() == "on"
            assert connection.execute(text("SHOW synchronous_commit")).scalar() == "on"


@pytest.mark.parametrize("kind", ["threads", "inline"])
async def test_both_adapters_keep_the_port_and_wake_those_who_follow_events(
    engine: Engine, kind: str
) -> None:
    bus = LocalBus()
    db: Db = ThreadPoolDb(engine, bus) if kind == "threads" else InlineDb(engine, bus)
    followers = bus.subscribe("events")
    await db.run(lambda session: access.ensure_project(session, "nlp", 0.0))
    assert not followers._woken.is_set(), "no event was written"
    assert await db.read(lambda session: [p.project for p in access.projects(session, EVERYTHING)]) == ["nlp"]
    await db.run(lambda session: _tell(session, "nlp"))
    await anext(followers)
    db.close()
