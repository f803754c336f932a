"""The wire may repeat, reorder, delay and lose: what is stored is the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from agents.protocol import Heartbeat, ProcessReport, ProcessState
from service import agents_link
from service.access import Credential
from service.db.repositories import reports
from service.db.scope import EVERYTHING
from service.errors import ConflictError, ForbiddenError, InvalidInputError, NotFoundError
from tests.control_world import CREDENTIAL, FakeAgent, World

REGIONS = ("eu-north", "eu-west", "us-east")


async def _running(world: World) -> tuple[str, list[FakeAgent]]:
    agents = await world.cluster_of(*REGIONS)
    job_id = await _all_ready(world, agents, training={"steps": 100})
    await world.beats(agents)
    return job_id, agents


async def _all_ready(world: World, agents: Sequence[FakeAgent], **changes: Any) -> str:
    """A job whose processes are ready, and not told of yet."""
    job_id = await world.submit(**changes)
    await world.plan()
    await world.beats(agents)
    for agent in agents:
        agent.ready()
    return job_id


async def test_reports_are_stored_once_however_often_they_come(stored_world: World) -> None:
    world = stored_world
    job_id, agents = await _running(world)
    agent = agents[0]
    agent.step(1, 2, 3)
    agent.log(0, "one", "two")
    beat = agent.heartbeat()
    for _ in range(3):  # the replies are lost
        reply = await agents_link.heartbeat(world.services, CREDENTIAL, beat)
    assert reply.reports_stored == 4
    agent.log(1, "two", "three")  # lines may be told again under other numbers of reports
    await agent.beat()
    assert agent.unsent == []
    lines = await world.run(
        lambda session: reports.log_lines(session, EVERYTHING, job_id, stage=None, after_seq=0, limit=10)
    )
    assert [(line.line, line.text) for line in lines] == [(0, "one"), (1, "two"), (2, "three")]
    steps = await world.run(lambda session: reports.steps(session, EVERYTHING, job_id, 0, 10))
    assert [step.step for step in steps] == [1, 2, 3]
    assert (await world.job(job_id)).reported_steps == 3


async def test_a_late_report_of_an_older_generation_does_not_displace_a_newer_one(world: World) -> None:
    job_id, agents = await _running(world)
    agent = agents[0]
    old_key = agent.alive()[0]
    agent.step(1)
    await agent.beat()
    agents[1].exit(1)
    for _ in range(3):
        await world.beats(agents)
    world.clock.advance(100)
    await world.beats(agents)
    await world.plan()
    await world.beats(agents)
    for each in agents:
        each.ready()
    agent.step(1)
    agent.step(1, 2, key=old_key)
    await world.beats(agents)
    steps = await world.run(lambda session: reports.steps(session, EVERYTHING, job_id, 0, 10))
    assert [(step.step, step.generation) for step in steps] == [(1, 2), (2, 1)]
    assert (await world.job(job_id)).reported_steps == 1, "progress is what this generation reported"


async def test_a_loss_that_is_no_number_is_stored_as_none(stored_world: World) -> None:
    world = stored_world
    job_id, agents = await _running(world)
    agents[0].step(1)
    agents[0].unsent = [report.model_copy(update={"loss": float("nan")}) for report in agents[0].unsent]
    wire = Heartbeat.model_validate_json(agents[0].heartbeat().model_dump_json())
    await agents_link.heartbeat(world.services, CREDENTIAL, wire)
    steps = await world.run(lambda session: reports.steps(session, EVERYTHING, job_id, 0, 10))
    assert [step.loss for step in steps] == [None]


async def test_an_agent_speaks_for_its_own_processes_only(world: World) -> None:
    job_id, agents = await _running(world)
    foreign = agents[1].alive()[0]
    agents[0].running[foreign] = ProcessReport(key=foreign, state=ProcessState.EXITED, exit_code=1)
    agents[0].step(1, key=foreign)
    reply = await agents[0].beat()
    assert foreign in reply.forget
    assert (await world.job(job_id)).state == "running"
    steps = await world.run(lambda session: reports.steps(session, EVERYTHING, job_id, 0, 10))
    assert steps == []


async def test_news_that_come_late_do_not_move_a_process_back(world: World) -> None:
    job_id, agents = await _running(world)
    early = agents[0].heartbeat()
    agents[0].exit(0)
    await agents[0].beat()
    await agents_link.heartbeat(world.services, CREDENTIAL, early)
    states = {process.key: process.state for process in await world.processes(job_id)}
    assert states[agents[0].started[0]] == "exited"


async def test_a_delayed_heartbeat_does_not_say_that_nothing_was_started(world: World) -> None:
    agents = await world.cluster_of(*REGIONS)
    await world.beats(agents)
    delayed = agents[0].heartbeat()  # sent before the job was known, and held up on the way
    world.clock.advance(0.001)
    job_id = await world.submit()
    await world.plan()
    await world.beats(agents)  # starts
    await world.cancel(job_id)
    agents[0].refuses_to_stop = True
    await agents_link.heartbeat(world.services, CREDENTIAL, delayed)
    for _ in range(2):
        await world.beats(agents)
    assert (await world.job(job_id)).state == "stopping", "its process on the first agent still runs"
    agents[0].refuses_to_stop = False
    await world.beats(agents)
    await world.beats(agents)
    assert (await world.job(job_id)).state == "cancelled"


async def test_late_copies_in_any_order_say_nothing_of_what_runs(world: World) -> None:
    agents = await world.cluster_of(*REGIONS)
    await world.beats(agents)
    copies = []
    for _ in range(2):
        world.clock.advance(2.0)
        copies.append(agents[0].heartbeat())  # before anything was started there
        await world.beats(agents)
    job_id = await _all_ready(world, agents)
    world.clock.advance(2.0)
    await world.beats(agents)
    for copy in copies:
        await agents_link.heartbeat(world.services, CREDENTIAL, copy)
    assert {process.state for process in await world.processes(job_id)} == {"ready"}
    assert (await world.job(job_id)).state == "running"


@pytest.mark.parametrize("step_s", [-300.0, -100.0, -1.0, 100.0, 300.0])
async def test_late_copies_from_before_a_clock_was_set_say_nothing_of_what_runs(
    stored_world: World, step_s: float
) -> None:
    world = stored_world
    agents = await world.cluster_of(*REGIONS)
    await world.beats(agents)
    teller, copies = agents[0], []
    for ahead_s in (0.0, step_s):
        teller.clock_ahead_s = ahead_s
        world.clock.advance(2.0)
        copies.append((teller.heartbeat(), teller.answered_s))  # before anything was started there
        await world.beats(agents)
        world.clock.advance(1.0)
        copies.append((teller.heartbeat(), teller.answered_s))  # overtaken by the next
    job_id = await _all_ready(world, agents)
    world.clock.advance(2.0)
    await world.beats(agents)
    for copy, answered_s in copies:
        await agents_link.heartbeat(world.services, CREDENTIAL, copy, frozenset(), answered_s)
    assert {process.state for process in await world.processes(job_id)} == {"ready"}
    assert (await world.job(job_id)).state == "running"


async def test_after_a_lost_answer_the_second_heartbeat_says_what_does_not_run(world: World) -> None:
    job_id, agents = await _running(world)
    world.clock.advance(2.0)
    await agents[0].send(agents[0].heartbeat())  # its answer is lost
    agents[0].running.clear()
    world.clock.advance(2.0)
    await agents[0].beat()
    assert (await world.job(job_id)).state == "running"
    world.clock.advance(2.0)
    await agents[0].beat()
    assert (await world.job(job_id)).state == "stopping"


async def test_who_has_not_joined_is_told_to(world: World) -> None:
    beat = Heartbeat(agent_id="nobody", boot_id="b", clock_s=1.0)
    with pytest.raises(NotFoundError, match="join"):
        await agents_link.heartbeat(world.services, CREDENTIAL, beat)


async def test_an_agent_id_belongs_to_its_token(world: World) -> None:
    (agent,) = await world.cluster_of("eu-north")
    with pytest.raises(ForbiddenError):
        await agents_link.heartbeat(world.services, Credential("token-other"), agent.heartbeat())


async def test_a_node_id_belongs_to_its_agent(world: World) -> None:
    (agent,) = await world.cluster_of("eu-north")
    thief = FakeAgent(world, "eu-west")
    with pytest.raises(ForbiddenError, match="belongs to agent"):
        await thief.join(node_id=agent.node_id)


async def test_joining_again_changes_nothing_but_what_is_new(world: World) -> None:
    job_id, agents = await _running(world)
    await agents[0].join()
    await world.beats(agents)
    assert (await world.job(job_id)).state == "running"
    with pytest.raises(ConflictError, match="has work on it"):
        await agents[0].join(region="eu-west")


async def test_an_offer_that_cannot_be_meant_names_the_field(world: World) -> None:
    with pytest.raises(InvalidInputError) as refused:
        await FakeAgent(world, "eu-north").join(port_first=2000, port_last=1999)
    assert refused.value.errors[0].pointer == "/nodes/0/port_last"


async def test_a_node_that_is_no_longer_offered_takes_no_more_work(world: World) -> None:
    (agent,) = await world.cluster_of("eu-north")
    await agent.join(node_id="node-other")
    await agent.beat()
    states = {kind.object_id: kind.data["to"] for kind in await world.events() if kind.object_kind == "node"}
    assert states == {"node-eu-north": "cordoned", "node-other": "ready"}
    await agent.join()
    states = {kind.object_id: kind.data["to"] for kind in await world.events() if kind.object_kind == "node"}
    assert states == {"node-eu-north": "ready", "node-other": "cordoned"}


async def test_log_lines_of_a_job_are_bounded(world: World) -> None:
    from service.db import agent_queries

    job_id, agents = await _running(world)
    agents[0].log(0, *(f"line {number}" for number in range(100)))
    await agents[0].beat()
    dropped = await world.run(lambda session: agent_queries.drop_oldest_lines(session, keep=10))
    lines = await world.run(
        lambda session: reports.log_lines(session, EVERYTHING, job_id, stage=None, after_seq=0, limit=1000)
    )
    assert dropped == 90
    assert [line.line for line in lines] == list(range(90, 100))
