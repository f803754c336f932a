"""Measuring links over HTTP: agents and servers of before and after work with each other."""

from __future__ import annotations

from typing import Any

import httpx

from agents.protocol import (
    ABILITIES_HEADER,
    LINK_TESTS,
    PROTOCOL_HEADER,
    Heartbeat,
    HeartbeatReply,
    JoinRequest,
)
from service.control.link_tests import measure_links
from service.db.repositories import link_tests
from tests.api_server import Server
from tests.control_world import FakeAgent

CAN = {ABILITIES_HEADER: f"something-else,{LINK_TESTS}"}


class Speaker:
    """An agent that speaks over HTTP, with these headers beside those of the protocol."""

    def __init__(self, server: Server, region: str, address: str, headers: dict[str, str]) -> None:
        self.agent = FakeAgent(server.world, region, address=address)
        self.headers = headers
        self._server = server

    async def join(self) -> None:
        asked: list[JoinRequest] = []

        async def keep(request: JoinRequest) -> None:
            asked.append(request)

        self.agent.send_join = keep  # type: ignore[assignment,method-assign]
        await self.agent.join()
        assert (await self._post("join", asked[0])).status_code == 200
        await self.beat()

    async def beat(self, **changes: Any) -> dict[str, Any]:
        self._server.world.clock.advance(0.001)
        beat = self.agent.heartbeat().model_copy(update=changes)
        reply = await self._post("heartbeat", beat)
        assert reply.status_code == 200, reply.text
        told: dict[str, Any] = reply.json()
        return told

    async def _post(self, path: str, body: JoinRequest | Heartbeat) -> httpx.Response:
        headers = {PROTOCOL_HEADER: "1", "Content-Type": "application/json", **self.headers}
        content = body.model_dump_json(exclude_none=True)
        async with self._server.client("agent") as client:
            return await client.post(f"/agent/v1/{path}", content=content, headers=headers)


async def test_whoever_says_that_it_can_is_told_what_to_measure_and_nobody_else_any_of_it(
    server: Server,
) -> None:
    world = server.world
    speakers = {
        region: Speaker(server, region, f"10.0.{number}.1", dict(CAN))
        for number, region in enumerate(("eu", "us"))
    }
    for speaker in speakers.values():
        await speaker.join()
    await world.link("eu", "us")
    await measure_links(world.services, world.leadership)
    [test] = await world.run(link_tests.running)
    far = speakers[test.dst]
    told = await far.beat()
    assert [each["role"] for each in told["link_tests"]] == ["listen"]
    far.headers = {}
    assert "link_tests" not in await far.beat(), "an agent of before refuses a field that it does not know"
    await measure_links(world.services, world.leadership)
    assert await world.run(link_tests.agents_that_measure) == {speakers[test.src].agent.agent_id}


def test_an_agent_sends_no_field_of_it_before_it_was_asked() -> None:
    """So a server of before, which refuses fields that it does not know, is told of none."""
    beat = Heartbeat(agent_id="agent-1", boot_id="boot-1", clock_s=1.0)
    assert "link_tests" not in beat.model_dump_json(exclude_none=True)
    reply = HeartbeatReply(reports_stored=0, heartbeat_interval_s=2.0, lease_s=60.0, server_time_s=1.0)
    assert "link_tests" not in reply.model_dump_json(exclude_none=True)
