"""The doctor finds what is wrong, says what to do, and ends with 1 exactly when something is wrong."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable
from typing import Any

import pytest
from typer.testing import Result

from service.api.schemas.access import WhoAmI
from service.api.schemas.cluster import LINK, NODE, REGION
from service.cli import doctor
from service.cli.doctor import OK, WARNING, WRONG, examine_world
from service.cli.exits import Exit
from tests.unit.cli.conftest import FakeServer

Bace = Callable[..., Result]
[ME] = WhoAmI.model_json_schema()["examples"]


def states(nodes: list[Any], regions: list[Any], links: list[Any]) -> dict[str, str]:
    return {check.name: check.state for check in examine_world(nodes, regions, links)}


@pytest.fixture(autouse=True)
def this_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.metadata.version", lambda name: NODE["agent_version"])


def test_a_healthy_world_has_nothing_to_complain_of() -> None:
    found = states([NODE], [REGION], [LINK])
    assert set(found.values()) == {OK}


@pytest.mark.parametrize(
    ("change", "name", "state"),
    [
        ({"state": "lost"}, "node eu-west-1", WRONG),
        ({"state": "cordoned"}, "node eu-west-1", WARNING),
        ({"clock_offset_s": -30.0}, "node eu-west-1", WARNING),
        ({"agent_version": "0.0.9"}, "versions", WARNING),
    ],
)
def test_what_is_odd_about_a_node_is_found(change: dict[str, Any], name: str, state: str) -> None:
    assert states([{**NODE, **change}], [REGION], [LINK])[name] == state


def test_a_world_without_nodes_prices_or_links_is_told() -> None:
    assert states([], [], [])["nodes"] == WRONG
    unpriced = {**REGION, "electricity_usd_per_kwh": None}
    assert states([NODE], [unpriced], [LINK])["prices"] == WARNING
    island = {**REGION, "region": "island"}
    assert states([NODE], [REGION, island], [LINK])["links"] == WARNING


@pytest.mark.parametrize(
    ("outcome", "state"), [("done", OK), ("broken-off", OK), ("failed", WARNING), ("timed-out", WARNING)]
)
def test_a_link_that_could_not_be_measured_is_told_with_its_reason(outcome: str, state: str) -> None:
    link = {**LINK, "last_test": {**LINK["last_test"], "outcome": outcome, "detail": "10.0.0.7: refused"}}
    [told] = [check for check in examine_world([NODE], [REGION], [link]) if check.name == "measured links"]
    assert told.state == state
    assert ("10.0.0.7: refused" in told.detail) is (state == WARNING)
    assert "measured links" not in states([NODE], [REGION], [{**LINK, "last_test": None}])


def healthy(server: FakeServer) -> None:
    server.answer("GET", "/healthz", {"status": "ok"})
    server.answer("GET", "/readyz", {"ready": True})
    server.answer("GET", "/v1/whoami", {**ME, "expires_at_s": None})
    for path, item in (("nodes", NODE), ("regions", REGION), ("links", LINK)):
        server.answer("GET", f"/v1/{path}", {"items": [item], "next": None})


def test_nothing_wrong_ends_with_0(bace: Bace, server: FakeServer) -> None:
    healthy(server)
    result = bace("doctor", "--no-node", "-o", "json")
    assert result.exit_code == Exit.OK
    document = json.loads(result.output)
    assert document["ok"]
    assert {"server", "clock", "ready", "token"} <= {check["name"] for check in document["checks"]}


@pytest.mark.parametrize(("left_s", "state"), [(30 * 86_400.0, OK), (86_400.0, WARNING)])
def test_a_token_that_ends_soon_is_told_of(bace: Bace, server: FakeServer, left_s: float, state: str) -> None:
    healthy(server)
    server.answer("GET", "/v1/whoami", {**ME, "expires_at_s": time.time() + left_s})
    document = json.loads(bace("doctor", "--no-node", "-o", "json").output)
    [token] = [check for check in document["checks"] if check["name"] == "token"]
    assert (token["state"], "rotate" in token["advice"]) == (state, state == WARNING)


def test_a_refused_token_is_found_and_ends_with_1(bace: Bace, server: FakeServer) -> None:
    healthy(server)
    server.refuse("GET", "/v1/nodes", 401, code="unauthenticated", detail="unknown token")
    result = bace("doctor", "--no-node")
    assert result.exit_code == Exit.FAILED
    assert "unknown token" in result.output
    assert "bace token create" in result.output


def test_a_server_that_is_not_ready_is_found(bace: Bace, server: FakeServer) -> None:
    healthy(server)
    server.answer("GET", "/readyz", {"leader": False}, 503)
    result = bace("doctor", "--no-node")
    assert result.exit_code == Exit.FAILED
    assert "bace migrate" in result.output


def test_what_the_agents_doctor_finds_counts(
    bace: Bace, server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    healthy(server)
    findings = [
        {"name": "server", "ok": False, "detail": "looked at already", "fix": ""},
        {"name": "torch", "ok": False, "detail": "no torch", "fix": "install torch"},
    ]

    def run(command: list[str], **options: Any) -> subprocess.CompletedProcess[bytes]:
        assert command[-2:] == ["doctor", "--json"]
        return subprocess.CompletedProcess(command, 1, json.dumps({"findings": findings}).encode(), b"")

    monkeypatch.setattr(doctor.subprocess, "run", run)
    result = bace("doctor")
    assert result.exit_code == Exit.FAILED
    assert "install torch" in result.output
    assert "looked at already" not in result.output


def test_the_agents_doctor_answers_in_json(bace: Bace, server: FakeServer) -> None:
    healthy(server)
    result = bace("doctor", "--cpu-slots", "1", "-o", "json")
    names = {check["name"] for check in json.loads(result.output)["checks"]}
    assert {"torch", "disk", "work folder"} <= names
