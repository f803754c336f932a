"""`bace node`: what it asks for, and what it shows."""

from __future__ import annotations

from collections.abc import Callable

from typer.testing import Result

from service.api.schemas.access import TOKEN, NewToken
from service.api.schemas.cluster import NODE, Node
from service.cli.exits import Exit
from tests.unit.cli.conftest import FakeServer

Bace = Callable[..., Result]


def test_a_join_token_is_made_for_a_region_and_a_time_and_says_what_to_do(
    bace: Bace, server: FakeServer
) -> None:
    made = {**TOKEN, "single_use": True, "region": "eu-west-2", "token": "bace_secret"}
    server.answer("POST", "/v1/join-tokens", NewToken.model_validate(made).model_dump(mode="json"))
    output = bace("node", "token", "create", "--region", "eu-west-2", "--ttl", "15m").output
    assert "BACE_TOKEN=bace_secret bace agent --region eu-west-2" in output
    [asked] = [each for each in server.asked if each["method"] == "POST"]
    assert asked["body"] == {"name": "join", "expires_in_s": 900.0, "region": "eu-west-2"}
    assert bace("node", "token", "create", "--ttl", "soon").exit_code == Exit.USAGE


def test_a_node_is_revoked_by_its_name(bace: Bace, server: FakeServer) -> None:
    path = f"/v1/nodes/{NODE['node_id']}/revoke"
    server.answer("POST", path, Node.model_validate({**NODE, "state": "cordoned"}).model_dump(mode="json"))
    assert "cordoned" in bace("node", "revoke", NODE["node_id"]).output
