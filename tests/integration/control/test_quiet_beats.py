"""Heartbeats that are stamped together are answered as those that are stored one by one, and store the same."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence

import pytest

from service import agents_link
from service.access import Credential
from service.db.engine import make_engine
from service.db.repositories import cluster
from service.errors import ForbiddenError
from service.folding import Folding
from service.lifecycle import NodeState
from service.quiet_beats import Beat, Quiet
from tests.control_world import CREDENTIAL, FakeAgent, World

REGIONS = ("eu-north", "eu-west", "us-east")
TURNS = 60


class Counted(Folding[Beat, Quiet | None]):
    """Counts the quiet ones."""

    def __init__(self) -> None:
        super().__init__(100)
        self.quiet = 0

    async def do(
        self, item: Beat, together: Callable[[Sequence[Beat]], Awaitable[Sequence[Quiet | None]]]
    ) -> Quiet | None:
        answer = await super().do(item, together)
        self.quiet += answer is not None
        return answer


class Never(Counted):
    """Takes none for quiet."""

    async def do(
        self, item: Beat, together: Callable[[Sequence[Beat]], Awaitable[Sequence[Quiet | None]]]
    ) -> Quiet | None:
        return None


async def _lived(folding: Counted, seed: int) -> tuple[list[str], list[tuple[str, str, dict[str, object]]]]:
    """Everything that agents were answered in a life drawn from the seed, and everything that happened."""
    world = World(make_engine("sqlite://"))
    object.__setattr__(world.services, "beats", folding)
    await world.start()
    draw, replies = random.Random(seed), []
    agents = await world.cluster_of(*REGIONS, slots=2)
    job_ids: list[str] = []
    for _ in range(TURNS):
        agent = draw.choice(agents)
        match draw.randrange(9):
            case 0:
                job_ids.append(await world.submit(training={"steps": 1000}))
            case 1:
                await world.plan()
            case 2:
                agent.ready()
            case 3 if agent.alive():
                agent.exit(draw.choice((0, 1)))
            case 4 if agent.alive():
                agent.step(agent.seq + 1)
            case 5 if job_ids:
                job_id = draw.choice(job_ids)
                if (await world.job(job_id)).state not in ("failed", "succeeded"):
                    await world.cancel(job_id)
            case 6 if draw.random() < 0.2:
                agent.crash()
            case 7 if draw.random() < 0.3:
                agent.running.clear()
        replies += [(await each.beat()).model_dump_json() for each in agents]
    happened = [(event.kind, event.object_id, event.data) for event in await world.events()]
    world.engine.dispose()
    return replies, happened


@pytest.mark.parametrize("seed", range(4))
async def test_stamped_together_or_stored_one_by_one_is_all_the_same(seed: int) -> None:
    folded = Counted()
    assert await _lived(folded, seed) == await _lived(Never(), seed)
    assert folded.quiet > TURNS, "most heartbeats bring no news"


async def test_all_that_come_at_once_are_one_transaction(world: World) -> None:
    agents = await world.cluster_of(*REGIONS)
    job_id = await world.submit()
    await world.plan()
    await world.until_running(agents)
    runs: list[object] = []
    run = world.services.db.run

    async def counted(work):  # type: ignore[no-untyped-def]
        runs.append(work)
        return await run(work)

    world.services.db.run = counted  # type: ignore[method-assign]
    world.clock.advance(7)
    beats = [agent.heartbeat() for agent in agents]
    replies = await asyncio.gather(
        *(agents_link.heartbeat(world.services, CREDENTIAL, beat) for beat in beats)
    )
    assert len(runs) == 1
    assert [[process.key for process in reply.desired] for reply in replies] == [
        agent.alive() for agent in agents
    ]
    heard = {agent.agent_id: agent.heartbeat_at_s for agent in await world.run(cluster.agents)}
    assert set(heard.values()) == {world.clock.now()}
    assert (await world.job(job_id)).state == "running"


async def test_a_quiet_heartbeat_of_another_token_is_refused(world: World) -> None:
    agents = await world.cluster_of(*REGIONS)
    answers = await asyncio.gather(
        agents_link.heartbeat(world.services, Credential("token-other"), agents[0].heartbeat()),
        agents_link.heartbeat(world.services, CREDENTIAL, agents[1].heartbeat()),
        return_exceptions=True,
    )
    assert isinstance(answers[0], ForbiddenError)
    assert not isinstance(answers[1], BaseException)


async def test_a_quiet_heartbeat_brings_a_lost_node_back(world: World) -> None:
    agent: FakeAgent = (await world.cluster_of("eu-north"))[0]
    await agent.beat()
    world.clock.advance(1)
    await world.liveness.sweep()
    for _ in range(30):
        world.clock.advance(10)
        await world.liveness.sweep()
    states = [node.state for node in await world.run(cluster.nodes)]
    assert states == [NodeState.LOST]
    await agent.beat()
    assert [node.state for node in await world.run(cluster.nodes)] == [NodeState.READY]
