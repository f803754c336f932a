"""Measurements of links: those that run, those that have been, and what they come to."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from sqlalchemy import and_, bindparam, delete, func, or_, select, update

from service.db.reader import Reader
from service.db.records import LinkEstimateRecord, LinkTestRecord
from service.db.scope import changed
from service.db.session import Session
from service.db.tables import AgentRow, LinkEstimateRow, LinkTestRow
from service.db.upsert import insert_of

_tests = Reader(LinkTestRecord, LinkTestRow)
_estimates = Reader(LinkEstimateRecord, LinkEstimateRow)
_ESTIMATES = _estimates.select().order_by(LinkEstimateRow.src, LinkEstimateRow.dst)
# Asked with every batch of heartbeats of agents that can measure: built once.
_ENDED_BETWEEN = _tests.select(
    LinkTestRow.ended_at_s > bindparam("after_s"), LinkTestRow.ended_at_s <= bindparam("until_s")
).order_by(LinkTestRow.ended_at_s, LinkTestRow.test_id)
_THAT_MEASURE = select(AgentRow.agent_id).where(
    AgentRow.measures_links.is_(True), AgentRow.revoked_at_s.is_(None)
)
_RUNNING = _tests.select(LinkTestRow.ended_at_s.is_(None)).order_by(LinkTestRow.test_id)


def add(session: Session, record: LinkTestRecord) -> None:
    _tests.add(session, record)


def running(session: Session) -> list[LinkTestRecord]:
    """Those that have not ended."""
    return _tests.fetch(session, _RUNNING, {})


def get(session: Session, test_id: str) -> LinkTestRecord | None:
    return _tests.get(session, test_id)


def change_running(session: Session, test_id: str, **values: Any) -> bool:
    """Sets `values` if it has not ended."""
    return changed(
        session.execute(
            update(LinkTestRow)
            .where(LinkTestRow.test_id == test_id, LinkTestRow.ended_at_s.is_(None))
            .values(**values)
        )
    )


def last_asked(session: Session) -> dict[tuple[str, str, str], float]:
    """(src, dst, kind) → when that was asked for last."""
    rows = session.execute(
        select(LinkTestRow.src, LinkTestRow.dst, LinkTestRow.kind, func.max(LinkTestRow.asked_at_s)).group_by(
            LinkTestRow.src, LinkTestRow.dst, LinkTestRow.kind
        )
    )
    return {(src, dst, kind): at_s for src, dst, kind, at_s in rows}


def sent_since(session: Session, at_s: float) -> dict[tuple[str, str], int]:
    """Directed link → bytes of measurements asked for since then: what may be sent counts until it is known."""
    rows = session.execute(
        select(LinkTestRow.src, LinkTestRow.dst, func.sum(LinkTestRow.sent_bytes))
        .where(LinkTestRow.asked_at_s > at_s, LinkTestRow.sent_bytes > 0)
        .group_by(LinkTestRow.src, LinkTestRow.dst)
    )
    return {(src, dst): int(sent) for src, dst, sent in rows}


def latencies(session: Session, a: str, b: str, since_s: float, limit: int) -> list[LinkTestRecord]:
    """Those between two regions, in either direction, that told the latency; the newest first."""
    return _tests.all(
        session,
        or_(
            and_(LinkTestRow.src == a, LinkTestRow.dst == b),
            and_(LinkTestRow.src == b, LinkTestRow.dst == a),
        ),
        LinkTestRow.latency_s.is_not(None),
        LinkTestRow.ended_at_s > since_s,
        order_by=[LinkTestRow.ended_at_s.desc(), LinkTestRow.test_id.desc()],
        limit=limit,
    )


def bandwidths(session: Session, src: str, dst: str, since_s: float, limit: int) -> list[LinkTestRecord]:
    """Those of the directed link that found it full; the newest first."""
    return _tests.all(
        session,
        LinkTestRow.src == src,
        LinkTestRow.dst == dst,
        LinkTestRow.bandwidth_bps.is_not(None),
        LinkTestRow.is_floor.is_(False),
        LinkTestRow.ended_at_s > since_s,
        order_by=[LinkTestRow.ended_at_s.desc(), LinkTestRow.test_id.desc()],
        limit=limit,
    )


def newest_ended(session: Session) -> dict[tuple[str, str], LinkTestRecord]:
    """Directed link → its measurement that ended last."""
    newest = (
        select(LinkTestRow.src, LinkTestRow.dst, func.max(LinkTestRow.ended_at_s).label("at_s"))
        .where(LinkTestRow.ended_at_s.is_not(None))
        .group_by(LinkTestRow.src, LinkTestRow.dst)
        .subquery()
    )
    found = _tests.fetch(
        session,
        _tests.select(
            LinkTestRow.src == newest.c.src,
            LinkTestRow.dst == newest.c.dst,
            LinkTestRow.ended_at_s == newest.c.at_s,
        ).order_by(LinkTestRow.test_id),
    )
    return {(record.src, record.dst): record for record in found}


def ended_between(session: Session, after_s: float, until_s: float) -> list[LinkTestRecord]:
    """Those that ended in (after_s, until_s]."""
    return _tests.fetch(session, _ENDED_BETWEEN, {"after_s": after_s, "until_s": until_s})


def drop_ended_before(session: Session, at_s: float) -> int:
    """How many there were."""
    gone = session.execute(
        delete(LinkTestRow).where(LinkTestRow.ended_at_s < at_s).returning(LinkTestRow.test_id)
    )
    return len(gone.all())


def estimates(session: Session) -> dict[tuple[str, str], LinkEstimateRecord]:
    """By directed link, for those that were ever measured."""
    return {(record.src, record.dst): record for record in _estimates.fetch(session, _ESTIMATES, {})}


def estimate(session: Session, src: str, dst: str) -> LinkEstimateRecord | None:
    return _estimates.get(session, src, dst)


def put_estimate(session: Session, record: LinkEstimateRecord) -> None:
    """In the place of the one before."""
    values = {name: getattr(record, name) for name in LinkEstimateRecord.__slots__}
    statement = insert_of(session.dialect, LinkEstimateRow.__table__).values(**values)
    figures = {name: value for name, value in values.items() if name not in ("src", "dst")}
    session.execute(statement.on_conflict_do_update(index_elements=["src", "dst"], set_=figures))


def agents_that_measure(session: Session) -> frozenset[str]:
    """Agents that can, and were not revoked."""
    return frozenset(session.scalars(_THAT_MEASURE))


def of_agents(session: Session, agent_ids: Collection[str]) -> list[LinkTestRecord]:
    """Those that run and in which one of these agents takes part."""
    return [test for test in running(session) if {test.from_agent, test.to_agent} & set(agent_ids)]
