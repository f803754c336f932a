"""Nodes join once with a token, are somebody of their own from then on, and touch nothing that is not theirs."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from agents.protocol import PROTOCOL_HEADER, JoinRequest
from service import limits
from service.db.repositories import access
from service.db.scope import EVERYTHING
from tests.api_server import Server
from tests.control_world import FakeAgent, job_document

DAY_S = 86_400.0


class Node:
    """An agent with one node that speaks over HTTP, under whatever it shows."""

    def __init__(self, server: Server, region: str, token: str, *, wants_identity: bool = True) -> None:
        self.agent = FakeAgent(server.world, region)
        self.token = token
        self._server = server
        self._wants_identity = wants_identity

    async def join(self, **changes: Any) -> httpx.Response:
        asked: list[JoinRequest] = []

        async def keep(request: JoinRequest) -> None:
            asked.append(request)

        self.agent.send_join = keep  # type: ignore[assignment,method-assign]
        await self.agent.join(**changes)
        document = asked[0].model_dump(mode="json", exclude={"identity"})
        if self._wants_identity:
            document["identity"] = True
        return await self._post("/agent/v1/join", document)

    async def adopt(self, **changes: Any) -> None:
        """Join, and show the identity from then on."""
        answer = await self.join(**changes)
        assert answer.status_code == 200, answer.text
        self.token = answer.json()["identity"]["token"]

    async def beat(self, **changes: Any) -> httpx.Response:
        document = self.agent.heartbeat().model_dump(mode="json") | changes
        self._server.world.clock.advance(0.001)
        return await self._post("/agent/v1/heartbeat", document)

    async def _post(self, path: str, document: dict[str, Any]) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self.token}", PROTOCOL_HEADER: "1"}
        async with self._server.client(None) as client:
            return await client.post(path, json=document, headers=headers)


async def _join_token(admin: httpx.AsyncClient, **body: Any) -> dict[str, Any]:
    answer = await admin.post("/v1/join-tokens", json=body)
    assert answer.status_code == 201, answer.text
    return dict(answer.json())


async def test_a_token_lets_one_node_join_once_and_it_is_somebody_of_its_own(
    server: Server, admin: httpx.AsyncClient
) -> None:
    made = await _join_token(admin, region="eu-north", expires_in_s=600.0)
    assert (made["single_use"], made["region"], made["agent_id"]) == (True, "eu-north", None)
    node = Node(server, "eu-north", made["token"])
    await node.adopt()
    assert (await node.beat()).status_code == 200
    late = Node(server, "eu-north", made["token"])
    assert (await late.join()).status_code == 401, "the token has been used"
    tokens = {each["token_id"]: each for each in (await admin.get("/v1/tokens")).json()["items"]}
    used = tokens[made["token_id"]]
    assert used["revoked_at_s"] is not None
    [identity] = [
        each for each in tokens.values() if each["agent_id"] == node.agent.agent_id and not each["single_use"]
    ]
    assert identity["role"] == "agent"
    assert identity["expires_at_s"] is not None
    stored = await server.world.run(lambda session: access.token(session, EVERYTHING, identity["token_id"]))
    assert stored is not None
    assert node.token not in repr(stored), "only its hash is stored"


async def test_a_join_token_is_for_its_region_its_time_and_for_joining(
    server: Server, admin: httpx.AsyncClient
) -> None:
    made = await _join_token(admin, region="eu-north", expires_in_s=600.0)
    elsewhere = await Node(server, "us-east", made["token"]).join()
    assert elsewhere.status_code == 403
    assert "eu-north" in elsewhere.json()["detail"]
    node = Node(server, "eu-north", made["token"])
    assert (await node.join()).status_code == 200
    assert (await node.beat()).status_code == 403, "what it joined with opens nothing else"
    server.world.clock.advance(601)
    assert (await node.join()).status_code == 401
    too_long = await admin.post("/v1/join-tokens", json={"expires_in_s": 2 * limits.MAX_JOIN_TOKEN_S})
    assert too_long.status_code == 422


async def test_an_answer_that_was_lost_is_asked_for_again_by_the_same_agent_alone(
    server: Server, admin: httpx.AsyncClient
) -> None:
    made = await _join_token(admin)
    node, thief = Node(server, "eu-north", made["token"]), Node(server, "eu-west", made["token"])
    lost = (await node.join()).json()["identity"]["token"]
    assert (await thief.join()).status_code == 403
    await node.adopt()
    assert (await node.beat()).status_code == 200
    node.token = lost
    assert (await node.beat()).status_code == 401, "the identity that nobody ever showed is void"


async def test_a_late_copy_of_a_join_does_not_void_the_identity_that_was_given_meanwhile(
    server: Server, admin: httpx.AsyncClient
) -> None:
    made = await _join_token(admin)
    node = Node(server, "eu-north", made["token"])
    held_up = (await node.join()).json()["identity"][
        "token"
    ]  # its answer comes too late: the agent asks again
    await node.adopt()
    given, node.token = node.token, made["token"]
    copied = (await node.join()).json()["identity"]["token"]
    node.token = given
    assert (await node.beat()).status_code == 200
    for never_shown in (held_up, copied):
        node.token = never_shown
        assert (await node.beat()).status_code == 401, "another was shown"
    node.token = made["token"]
    assert (await node.join()).status_code == 401, "and the token is used"


async def test_a_lost_node_is_another_agents_with_a_token_to_join_with_alone(
    server: Server, admin: httpx.AsyncClient
) -> None:
    other, node, set_up_anew = [
        Node(server, region, (await _join_token(admin))["token"])
        for region in ("eu-west", "eu-north", "us-east")
    ]
    others_node = {"node_id": other.agent.node_id, "region": "eu-west"}
    for each in (other, node):
        await each.adopt()
        assert (await each.beat()).status_code == 200
    end_s = server.world.clock.now() + 2.0 * server.world.services.settings.node_lost_after_s
    while server.world.clock.now() < end_s:
        server.world.clock.advance(20.0)
        assert (await node.beat()).status_code == 200
        await server.world.liveness.sweep()
    assert (await admin.get(f"/v1/nodes/{other.agent.node_id}")).json()["state"] == "lost"
    refused = await node.join(**others_node)
    assert refused.status_code == 403
    assert "bace node token create" in refused.json()["detail"]
    await set_up_anew.adopt(**others_node)
    assert (await set_up_anew.beat()).status_code == 200
    shown = (await admin.get(f"/v1/nodes/{other.agent.node_id}")).json()
    assert (shown["agent_id"], shown["state"]) == (set_up_anew.agent.agent_id, "ready")


async def test_a_node_touches_nothing_that_is_not_its_own(server: Server, admin: httpx.AsyncClient) -> None:
    mine = Node(server, "eu-north", (await _join_token(admin))["token"])
    other = Node(server, "eu-west", (await _join_token(admin))["token"])
    for node in (mine, other):
        await node.adopt()
        assert (await node.beat()).status_code == 200
    job = await admin.post("/v1/jobs", json=job_document(parallelism={"stages": 1}, training={"steps": 9}))
    await server.world.plan()
    desired = {node: (await node.beat()).json()["desired"] for node in (mine, other)}
    [runs], [idle] = [[node for node in desired if bool(desired[node]) is busy] for busy in (True, False)]
    key = desired[runs][0]["key"]

    assert (await idle.beat(agent_id=runs.agent.agent_id)).status_code == 403, "in another's name"
    joined_as = await idle.join(node_id=runs.agent.node_id)
    assert joined_as.status_code == 403, "another's node"
    report = {"key": key, "state": "exited", "exit_code": 1}
    step = {
        "kind": "step",
        "seq": 1,
        "key": key,
        "step": 9,
        "loss": 1.0,
        "step_time_s": 1.0,
        "tokens": 1,
        "at_s": 1.0,
    }
    answer = await idle.beat(processes=[report], reports=[step])
    assert answer.status_code == 200
    assert answer.json()["desired"] == []
    shown = (await admin.get(f"/v1/jobs/{job.json()['job_id']}")).json()
    assert (shown["state"], shown["reported_steps"]) == ("starting", 0), "another's process does not move"
    stranger = Node(server, "us-east", idle.token)
    assert (await stranger.join()).status_code == 403, "an identity lets no other agent join"
    with_identity = {"Authorization": f"Bearer {idle.token}"}
    async with server.client(None) as client:
        for method, path in (("GET", "/v1/jobs"), ("POST", "/v1/join-tokens"), ("GET", "/v1/tokens")):
            refused = await client.request(method, path, headers=with_identity, json={})
            assert refused.status_code == 403, path


async def _due_for_a_secret(server: Server, admin: httpx.AsyncClient) -> Node:
    """A node that has shown its identity, whose next heartbeat is answered with a new secret."""
    node = Node(server, "eu-north", (await _join_token(admin))["token"])
    await node.adopt()
    await node.beat()
    server.world.clock.advance(server.world.services.settings.node_identity_lifetime_s * 0.7)
    return node


async def test_an_identity_is_renewed_before_it_ends_and_outlives_lost_answers(
    server: Server, admin: httpx.AsyncClient
) -> None:
    life_s = server.world.services.settings.node_identity_lifetime_s
    node = Node(server, "eu-north", (await _join_token(admin))["token"])
    await node.adopt()
    server.world.clock.advance(life_s / 2)
    assert "identity" not in (await node.beat()).json()
    server.world.clock.advance(life_s / 5)
    first = (await node.beat()).json()["identity"]["token"]  # lost on the way
    server.world.clock.advance(
        limits.TOKEN_CACHE_S
    )  # for so long it is not asked again which secret is the newest
    second = (await node.beat()).json()["identity"]["token"]
    assert len({node.token, first, second}) == 3
    before, node.token = node.token, second
    assert "identity" not in (await node.beat()).json()
    server.world.clock.advance(life_s / 2)
    assert (await node.beat()).status_code == 200, "it outlives the first"
    node.token = before
    assert (await node.beat()).status_code == 401, "which has ended at its own time"
    node.token = first
    assert (await node.beat()).status_code == 401


async def test_a_late_copy_of_a_heartbeat_does_not_void_the_secret_that_was_given_meanwhile(
    server: Server, admin: httpx.AsyncClient
) -> None:
    node = await _due_for_a_secret(server, admin)
    sent = node.agent.heartbeat().model_dump(mode="json")
    assert "identity" in (await node.beat(**sent)).json()  # on its way for so long that the agent asks again
    server.world.clock.advance(5.0)
    before, given = node.token, (await node.beat()).json()["identity"]["token"]
    assert "identity" not in (await node.beat(**sent)).json(), "a copy of the first, with what was shown then"
    server.world.clock.advance(limits.TOKEN_CACHE_S)
    node.token = before
    assert (await node.beat(**sent)).status_code == 200, "until the new one is shown"
    node.token = given
    assert (await node.beat()).status_code == 200
    node.token = before
    server.world.clock.advance(limits.TOKEN_CACHE_S)
    assert (await node.beat()).status_code == 401, "which has replaced it"


@pytest.mark.parametrize(("since_s", "status"), [(0.0, 200), (limits.TOKEN_CACHE_S, 401)])
async def test_who_shows_the_secret_before_cannot_void_one_that_was_shown(
    server: Server, admin: httpx.AsyncClient, since_s: float, status: int
) -> None:
    node = await _due_for_a_secret(server, admin)
    sent = node.agent.heartbeat().model_dump(mode="json")
    before, given = node.token, (await node.beat(**sent)).json()["identity"]["token"]
    server.world.clock.advance(limits.TOKEN_CACHE_S)
    assert "identity" not in (await node.beat(**sent)).json(), "a copy: the secret is looked up anew"
    node.token = given
    assert (await node.beat()).status_code == 200
    server.world.clock.advance(since_s)
    node.token = before
    answer = await node.beat()  # as the agent's next word
    assert (answer.status_code, "identity" in answer.json()) == (status, False)
    node.token = given
    server.world.clock.advance(limits.TOKEN_CACHE_S)
    assert (await node.beat()).status_code == 200


async def test_late_copies_in_any_order_do_not_void_the_secret_that_was_given_meanwhile(
    server: Server, admin: httpx.AsyncClient
) -> None:
    node = await _due_for_a_secret(server, admin)
    copies = []
    for _ in range(2):
        copies.append(node.agent.heartbeat().model_dump(mode="json"))
        server.world.clock.advance(5.0)
    given = (await node.beat()).json()["identity"]["token"]
    for copy in copies:
        assert "identity" not in (await node.beat(**copy)).json(), "sent before the one that was answered"
    server.world.clock.advance(limits.TOKEN_CACHE_S)
    node.token = given
    assert (await node.beat()).status_code == 200


async def test_a_revoked_node_is_out_until_it_joins_with_a_new_token(
    server: Server, admin: httpx.AsyncClient
) -> None:
    shared = server.tokens["agent"]
    node = Node(server, "eu-north", shared)
    await node.adopt()
    assert (await node.beat()).status_code == 200
    revoked = await admin.post(f"/v1/nodes/{node.agent.node_id}/revoke")
    assert (revoked.status_code, revoked.json()["state"]) == (200, "cordoned")
    assert (await node.beat()).status_code == 401
    node.token = shared
    refused = await node.join()
    assert refused.status_code == 403
    assert "bace node token create" in refused.json()["detail"]
    assert (await admin.post(f"/v1/nodes/{node.agent.node_id}/revoke")).status_code == 200
    node.token = (await _join_token(admin))["token"]
    await node.adopt()
    assert (await node.beat()).status_code == 200
    assert (await admin.get(f"/v1/nodes/{node.agent.node_id}")).json()["state"] == "ready"


async def test_a_shared_token_enrols_agents_and_still_serves_those_of_before(server: Server) -> None:
    shared = server.tokens["agent"]
    former = Node(server, "eu-north", shared, wants_identity=False)
    answer = await former.join()
    assert (answer.status_code, "identity" in answer.json()) == (200, False), (
        "its version would refuse the field"
    )
    assert (await former.beat()).status_code == 200
    node = Node(server, "eu-west", shared)
    await node.adopt()
    assert (await node.beat()).status_code == 200
    node.token = shared
    assert (await node.beat()).status_code == 403, "its identity alone speaks for it now"
    assert (await node.join()).status_code == 403
    upgraded = Node(server, "eu-north", shared)
    await upgraded.adopt()
    assert (await upgraded.beat()).status_code == 200


@pytest.mark.parametrize("role", ["nlp", "vision", "viewer", "agent"])
async def test_only_administrators_let_nodes_in_and_out(server: Server, role: str) -> None:
    async with server.client(role) as client:
        assert (await client.post("/v1/join-tokens", json={})).status_code == 403
        assert (await client.post("/v1/nodes/some/revoke")).status_code == 403
