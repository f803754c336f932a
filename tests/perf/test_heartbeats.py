"""Heartbeats per second of one server process: JSON in, one transaction, JSON out.

Compared to what a cluster needs: 1,000 nodes, one agent each, a heartbeat every 2 seconds: 500 a second; and to the
2,500 two-row inserts a second that SQLAlchemy on SQLite does inline on one core of a machine of two.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from agents.protocol import Heartbeat
from service import agents_link
from service.db.engine import make_engine
from tests.control_world import TOKEN, FakeAgent, World

AGENTS = 50
ROUNDS = 6
NEEDED_PER_S = 500.0

pytestmark = pytest.mark.perf


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
            reply = await agents_link.heartbeat(world.services, TOKEN, beat)
            assert len(reply.model_dump_json()) > 100
            agent.obey(reply)
            sent += 1
    rate = sent / (time.perf_counter() - begin_s)
    kind = "a step each" if news else "no news"
    print(
        f"\nheartbeats, {where}, {kind}: {rate:,.0f} a second on one core "
        f"(1,000 nodes every 2 s need {NEEDED_PER_S:,.0f}; inline two-row inserts reach about 2,500)"
    )
    assert rate > 0
    engine.dispose()
