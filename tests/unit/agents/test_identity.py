"""The agent's identity: kept for its owner alone, shown as soon as it is on disk, and replaced where it has ended."""

from __future__ import annotations

import os
from pathlib import Path

import httpx
import pytest

from agents.client import ServerClient
from agents.identity import Credentials, IdentityFile
from agents.protocol import HeartbeatReply, JoinReply, JoinRequest, NodeIdentity
from tests.unit.agents.test_daemon import INTERVAL_S, LEASE_S, World

FIRST, SECOND = (NodeIdentity(token=f"bace_{name}", expires_at_s=2e9) for name in ("first", "second"))


def test_it_is_kept_for_its_owner_alone_and_read_again(tmp_path: Path) -> None:
    path = tmp_path / "identity.json"
    file = IdentityFile(path)
    assert file.read() is None
    os.umask(0o000)
    file.write(FIRST)
    assert path.stat().st_mode & 0o777 == 0o600
    assert IdentityFile(path).read() == FIRST
    path.write_text("{half")
    assert file.read() is None, "what cannot be read is no identity: the agent joins anew"
    elsewhere = tmp_path / "link.json"
    elsewhere.symlink_to(path)
    file.write(SECOND)
    assert IdentityFile(elsewhere).read() is None, "no link is followed"


def test_what_is_not_on_disk_is_not_shown(tmp_path: Path) -> None:
    credentials = Credentials("given", IdentityFile(tmp_path / "missing" / "identity.json"))
    with pytest.raises(OSError, match="missing"):
        credentials.keep(FIRST)
    assert credentials.token == "given"


def test_without_another_token_a_refusal_changes_nothing(tmp_path: Path) -> None:
    assert not Credentials("given").refused()
    store = IdentityFile(tmp_path / "identity.json")
    store.write(FIRST)
    alone = Credentials("", store)
    assert not alone.refused()
    assert alone.token == FIRST.token


class Gate:
    """A server that hands identities out, and refuses what has ended."""

    def __init__(self) -> None:
        self.shown: list[str] = []
        self.asked: list[bool] = []
        self.ended: set[str] = set()
        self.renewal: NodeIdentity | None = None
        self.next = FIRST

    def __call__(self, request: httpx.Request) -> httpx.Response:
        token = request.headers["Authorization"].removeprefix("Bearer ")
        self.shown.append(token)
        if token in self.ended:
            return httpx.Response(401, json={"detail": "ended"})
        times = {"heartbeat_interval_s": INTERVAL_S, "lease_s": LEASE_S, "server_time_s": 0}
        if request.url.path.endswith("/join"):
            self.asked.append(JoinRequest.model_validate_json(request.content).identity)
            reply = JoinReply(**times, identity=self.next if self.asked[-1] else None)
            return httpx.Response(200, content=reply.model_dump_json())
        beat = HeartbeatReply(reports_stored=0, **times, identity=self.renewal)
        self.renewal = None
        return httpx.Response(200, content=beat.model_dump_json())


def test_it_joins_once_with_what_it_was_given_and_then_shows_its_own(tmp_path: Path) -> None:
    world, gate = World(tmp_path / "agent"), Gate()
    store = IdentityFile(world.work_dir.identity_file)

    def restart() -> None:
        credentials = Credentials("given", store)
        world.restart_with(
            ServerClient("http://bace.test", credentials.token, transport=httpx.MockTransport(gate)),
            credentials,
        )

    restart()
    world.pass_time(10.0)
    assert gate.shown[0] == "given"
    assert set(gate.shown[1:]) == {FIRST.token}
    gate.renewal = SECOND
    world.pass_time(10.0)
    assert gate.shown[-1] == SECOND.token
    assert store.read() == SECOND

    world.state.close()
    restart()  # the next agent in the folder goes on with it
    gate.shown.clear()
    world.pass_time(10.0)
    assert set(gate.shown) == {SECOND.token}
    assert gate.asked == [True, False]

    gate.ended.add(SECOND.token)  # it has ended: what it was given lets it join anew
    gate.next = NodeIdentity(token="bace_third", expires_at_s=2e9)
    world.pass_time(120.0)
    assert gate.shown[-1] == "bace_third"
    assert gate.asked == [True, False, True]
    world.close()
