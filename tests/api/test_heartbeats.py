"""Heartbeats over HTTP: the header says which answer was read, whatever the clock says."""

from __future__ import annotations

import httpx
import pytest

from agents.protocol import (
    ANSWERED_HEADER,
    PROTOCOL_HEADER,
    Heartbeat,
    HeartbeatReply,
    JoinReply,
    JoinRequest,
)
from tests.api_server import Server
from tests.control_world import FakeAgent


class Speaker(FakeAgent):
    """An agent that speaks over HTTP."""

    server: Server

    async def send_join(self, request: JoinRequest) -> JoinReply:
        return JoinReply.model_validate_json((await self.post("join", request, "0.0")).content)

    async def send(self, beat: Heartbeat) -> HeartbeatReply:
        reply = await self.post("heartbeat", beat, repr(self.answered_s))
        return HeartbeatReply.model_validate_json(reply.content)

    async def post(self, path: str, body: JoinRequest | Heartbeat, answered_s: str) -> httpx.Response:
        headers = {PROTOCOL_HEADER: "1", ANSWERED_HEADER: answered_s, "Content-Type": "application/json"}
        async with self.server.client("agent") as client:
            return await client.post(
                f"/agent/v1/{path}", content=body.model_dump_json(exclude_none=True), headers=headers
            )


async def _joined(server: Server) -> Speaker:
    agent = Speaker(server.world, "eu-north")
    agent.server = server
    await agent.join()
    await agent.beat()
    return agent


async def test_copies_from_before_a_clock_was_set_say_nothing_of_what_runs(server: Server) -> None:
    world, agent, copies = server.world, await _joined(server), []
    for agent.clock_ahead_s in (0.0, 300.0):
        world.clock.advance(2.0)
        copies.append((agent.heartbeat(), repr(agent.answered_s)))
        await agent.beat()
    job_id = await world.submit(parallelism={"stages": 1})
    await world.plan()
    await world.until_running([agent])
    for copy in copies:
        assert (await agent.post("heartbeat", *copy)).status_code == 200
    assert (await world.job(job_id)).state == "running"


async def test_what_runs_no_more_is_said_by_who_has_read_the_last_answer(server: Server) -> None:
    world, agent = server.world, await _joined(server)
    job_id = await world.submit(parallelism={"stages": 1})
    await world.plan()
    await world.until_running([agent])
    agent.running.clear()
    agent.clock_ahead_s = -100.0
    await agent.beat()
    assert (await world.job(job_id)).state != "running"


@pytest.mark.parametrize("answered_s", ["", "soon", "nan", "-1.0", "inf"])
async def test_an_answer_at_no_time_is_refused(server: Server, answered_s: str) -> None:
    agent = await _joined(server)
    assert (await agent.post("heartbeat", agent.heartbeat(), answered_s)).status_code == 422
