"""Heartbeats that are stamped together are answered as those that are stored one by one, and store the same."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence

import pytest
from sqlalchemy import select

from scheduler.job import LIVE_JOB_STATES as LIVE
from service import agents_link, topics
from service.access import Credential
from service.db.engine import make_engine
from service.db.repositories import cluster
from service.db.repositories import jobs as job_rows
from service.db.tables import JobRow, LogRow, ProcessRow, StepRow
from service.errors import ForbiddenError
from service.folding import Folding
from service.lifecycle import NodeState
from service.quiet_beats import Beat, Quiet
from tests.control_world import CREDENTIAL, FakeAgent, World

REGIONS = ("eu-north", "eu-west", "us-east")
TURNS = 60


class Counted(Folding[Beat, Quiet | None]):
    """Counts the quiet ones, and those that brought reports."""

    def __init__(self) -> None:
        super().__init__(100)
        self.quiet = self.told = 0

    async def do(
        self, item: Beat, together: Callable[[Sequence[Beat]], Awaitable[Sequence[Quiet | None]]]
    ) -> Quiet | None:
        answer = await super().do(item, together)
        self.quiet += answer is not None
        self.told += answer is not None and answer.has_reports
        return answer


class Never(Counted):
    """Takes none for quiet."""

    async def do(
        self, item: Beat, together: Callable[[Sequence[Beat]], Awaitable[Sequence[Quiet | None]]]
    ) -> Quiet | None:
        return None


async def _lived(folding: Counted, seed: int) -> tuple[list[str], list[object], list[object]]:
    """Everything that agents were answered in a life drawn from the seed, everything that happened, and what is stored
    of it."""
    world = World(make_engine("sqlite://"))
    object.__setattr__(world.services, "beats", folding)
    await world.start()
    draw, replies = random.Random(seed), []
    agents = await world.cluster_of(*REGIONS, slots=2)
    job_ids = [await world.submit(training={"steps": 1000})]
    await world.plan()
    for _ in range(TURNS):
        agent = draw.choice(agents)
        world.clock.advance(2)  # jobs that have failed are tried again
        match draw.randrange(14):
            case 0:
                job_ids.append(await world.submit(training={"steps": draw.choice((6, 1000))}))
            case 1:
                await world.plan()
            case 2:
                agent.ready()
            case 3 if agent.alive():
                agent.exit(draw.choice((0, 1)))
            case 4 | 9 | 10 if agent.alive():
                agent.step(*range(draw.randrange(1, 5), draw.randrange(5, 9)), key=draw.choice(agent.alive()))
            case 11 if agent.alive():
                agent.log(draw.randrange(3), "said", "more\x00")
            case 12 if agent.alive():
                agent.busy(draw.random())
            case 13 if agent.alive():
                agent.checkpoint(draw.randrange(1, 7))
            case 5 if job_ids:
                job_id = draw.choice(job_ids)
                if (await world.job(job_id)).state not in ("failed", "succeeded"):
                    await world.cancel(job_id)
            case 6 if draw.random() < 0.2:
                agent.crash()
            case 7 if draw.random() < 0.3:
                agent.running.clear()
        replies += [(await each.beat()).model_dump_json() for each in agents]
    happened: list[object] = [(event.kind, event.object_id, event.data) for event in await world.events()]
    stored: list[object] = []
    with world.engine.connect() as connection:
        for table in (JobRow, StepRow, LogRow, ProcessRow):
            columns = table.__table__.c  # numbers of lines are in the order in which they came
            order = [column for column in columns if column.primary_key and column.name != "seq"]
            stored += [tuple(row) for row in connection.execute(select(*columns).order_by(*order))]
    world.engine.dispose()
    return replies, happened, stored


@pytest.mark.parametrize("seed", [0, 1, 3, 5])
async def test_stamped_together_or_stored_one_by_one_is_all_the_same(seed: int) -> None:
    folded = Counted()
    assert await _lived(folded, seed) == await _lived(Never(), seed)
    assert folded.quiet > TURNS, "most heartbeats move nothing"
    assert folded.told, "some of them bring reports"


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


async def test_steps_that_come_at_once_are_one_transaction_unless_one_ends_its_job(world: World) -> None:
    agents = await world.cluster_of(*REGIONS)
    for steps in (9, 1000, 1000):
        await world.submit(parallelism={"stages": 1}, training={"steps": steps})
    await world.plan()
    await world.until_running(agents)
    followers = world.bus.subscribe(topics.REPORTS)
    runs: list[object] = []
    run = world.services.db.run

    async def counted(work):  # type: ignore[no-untyped-def]
        runs.append(work)
        return await run(work)

    world.services.db.run = counted  # type: ignore[method-assign]

    async def told(*steps: int) -> list[int]:
        for agent in agents:
            agent.step(*steps)
        world.clock.advance(1)
        replies = await asyncio.gather(*(agent.send(agent.heartbeat()) for agent in agents))
        assert [reply.reports_stored for reply in replies] == [agent.seq for agent in agents]
        for agent, reply in zip(agents, replies, strict=True):
            agent.obey(reply)
        await anext(followers)
        return sorted([job.reported_steps for job in await world.run(lambda s: job_rows.in_states(s, LIVE))])

    assert await told(1, 2, 3) == [3, 3, 3]
    assert len(runs) == 2, "one transaction, and this test's look"
    assert await told(4, 9) == [9, 9, 9]
    assert len(runs) == 5, "that which brings a job to its end is stored alone"


async def test_of_two_copies_that_come_at_once_each_report_is_stored_once(world: World) -> None:
    (agent,) = await world.cluster_of("eu-north")
    job_id = await world.submit(parallelism={"stages": 1}, training={"steps": 1000})
    await world.plan()
    await world.until_running([agent])
    agent.step(1)
    agent.log(0, "said")
    world.clock.advance(1)
    beat = agent.heartbeat()
    replies = await asyncio.gather(agent.send(beat), agent.send(beat), agent.send(beat))
    assert {reply.reports_stored for reply in replies} == {agent.seq}
    assert (await world.job(job_id)).reported_steps == 1
    with world.engine.connect() as connection:
        assert [row.text for row in connection.execute(select(LogRow.text))] == ["said"]


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
