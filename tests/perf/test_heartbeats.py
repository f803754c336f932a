"""Heartbeats per second of one server process: JSON in, one transaction, JSON out.

Compared to what a cluster needs: 1,000 nodes, one agent each, a heartbeat every 2 seconds: 500 a second; and to bare
transactions of two inserted rows through SQLAlchemy on the same database, in the same run.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from sqlalchemy import Column, Engine, Float, Integer, MetaData, Table, insert

from agents.protocol import Heartbeat
from service import agents_link
from service.db.engine import make_engine
from tests.control_world import CREDENTIAL, FakeAgent, World

AGENTS = 50
ROUNDS = 6
NEEDED_PER_S = 500.0

BARE_TRANSACTIONS = 200

pytestmark = pytest.mark.perf


def bare_transactions_per_s(engine: Engine) -> float:
    """Transactions of two inserted rows, one after the other, inline."""
    table = Table("bare", MetaData(), Column("id", Integer, primary_key=True), Column("value", Float))
    table.create(engine)
    begin_s = time.perf_counter()
    for number in range(BARE_TRANSACTIONS):
        with engine.begin() as connection:
            connection.execute(insert(table).values(value=number))
            connection.execute(insert(table).values(value=-number))
    return BARE_TRANSACTIONS / (time.perf_counter() - begin_s)


@pytest.mark.parametrize("where", ["memory", "file", pytest.param("postgres", marks=pytest.mark.postgres)])
@pytest.mark.parametrize("news", [False, True], ids=["idle", "with-a-step"])
async def test_heartbeats_per_second(
    where: str, news: bool, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    urls = {"memory": "sqlite://", "file": f"sqlite:///{tmp_path / 'bace.db'}"}
    url = urls[where] if where in urls else request.getfixturevalue("postgres_url")
    engine = make_engine(url)
    world = World(engine)
    await world.start()
    agents = [FakeAgent(world, f"region-{number}", address=f"10.0.0.{number}") for number in range(AGENTS)]
    for agent in agents:
        await agent.join()
    for _ in range(AGENTS):
        await world.submit(parallelism={"stages": 1}, training={"steps": 1000})
    await world.plan()
    await world.beats(agents)
    for agent in agents:
        agent.ready()
    await world.beats(agents)
    assert sum(len(agent.alive()) for agent in agents) == AGENTS

    sent, begin_s = 0, time.perf_counter()
    for number in range(1, ROUNDS + 1):
        for agent in agents:
            if news:
                agent.step(number)
            world.clock.advance(0.001)
            beat = Heartbeat.model_validate_json(agent.heartbeat().model_dump_json())
            reply = await agents_link.heartbeat(world.services, CREDENTIAL, beat)
            assert len(reply.model_dump_json()) > 100
            agent.obey(reply)
            sent += 1
    rate = sent / (time.perf_counter() - begin_s)
    kind, bare = "a step each" if news else "no news", bare_transactions_per_s(engine)
    print(
        f"\nheartbeats, {where}, {kind}: {rate:,.0f} a second on one core, {rate / bare:.2f} of {bare:,.0f} bare "
        f"two-row transactions in the same run (1,000 nodes every 2 s need {NEEDED_PER_S:,.0f})"
    )
    assert rate > 0
    engine.dispose()
