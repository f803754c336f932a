"""The event log rebuilds the state: folding the events of every object gives its row."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from sqlalchemy import select

from service.db.engine import make_engine
from service.db.records import EventRecord
from service.db.session import Session
from service.db.tables import AllocationRow, JobRow, NodeRow, ProcessRow
from service.lifecycle import _TABLES
from tests.control_world import World

REGIONS = ("eu-north", "eu-west", "us-east")


def fold(events: list[EventRecord]) -> dict[tuple[str, str], str]:
    """State of every object by its events. Fails on a gap: each move begins where the last one ended."""
    states: dict[tuple[str, str], str] = {}
    for event in events:
        if event.object_kind not in _TABLES or "to" not in event.data:
            continue
        name = (event.object_kind, event.object_id)
        source = event.data.get("from")
        assert states.get(name) == source, (
            f"{name}: {event.kind} from {source}, but it was {states.get(name)}"
        )
        if source is not None:
            assert event.data["to"] in _TABLES[event.object_kind][source]
        states[name] = event.data["to"]
    return states


def _rows(session: Session) -> dict[tuple[str, str], str]:
    return {
        (kind, name): state
        for kind, key, column in (
            ("job", JobRow.job_id, JobRow.state),
            ("allocation", AllocationRow.allocation_id, AllocationRow.state),
            ("process", ProcessRow.key, ProcessRow.state),
            ("node", NodeRow.node_id, NodeRow.state),
        )
        for name, state in session.execute(select(key, column))
    }


@pytest.fixture
async def hasty_world() -> AsyncIterator[World]:
    """Where no region cools down: jobs start again as soon as there is room."""
    engine = make_engine("sqlite://")
    world = World(engine, region_cooldown_s=0)
    await world.start()
    yield world
    engine.dispose()


async def test_events_fold_to_the_rows(hasty_world: World) -> None:
    world = hasty_world
    agents = await world.cluster_of(*REGIONS, slots=2)
    jobs = [await world.submit(training={"steps": 2}) for _ in range(3)]
    for round_number in range(12):
        await world.plan()
        await world.beats(agents)
        if round_number == 3:
            await world.cancel(jobs[1])
        if round_number == 5:
            agents[0].exit(-9)
        if round_number == 7:
            agents[1].crash()
        for agent in agents:
            agent.ready()
        if round_number == 9:
            for agent in agents:
                for key in agent.alive():
                    agent.step(1, 2, key=key)
                agent.exit(0)
        world.clock.advance(20)
        await world.reconcile()
        rows = await world.run(_rows)
        assert fold(await world.events()) == rows
    states = {rows["job", job_id] for job_id in jobs}
    assert "cancelled" in states
    assert "succeeded" in states
    assert any(state == "ended" for (kind, _), state in rows.items() if kind == "allocation")
