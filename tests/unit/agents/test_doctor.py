"""The doctor: every finding is true, and what is not right comes with what to do."""

from __future__ import annotations

import email.utils
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from agents import doctor
from agents.client import ServerClient
from agents.doctor import (
    Finding,
    Peer,
    check_address,
    check_devices,
    check_peer,
    check_ports,
    check_server,
    check_torch,
    check_work_dir,
    examine,
    known_peers,
)
from agents.listen import listening
from agents.settings import AgentSettings, NodeOptions, NodeSettings, complete_nodes

URL = "http://127.0.0.1:1"


def node(name: str = "node-a", **options: object) -> NodeSettings:
    said = {"name": name, "cpu_slots": 2, "address": "127.0.0.1", **options}
    (only,) = complete_nodes(NodeOptions(region="eu"), [NodeOptions.model_validate(said)])
    return only


def client(answer: Callable[[httpx.Request], httpx.Response]) -> ServerClient:
    return ServerClient("http://bace.test", "t", transport=httpx.MockTransport(answer))


def server(status: int = 200, date_s: float | None = None, nodes: object = None) -> ServerClient:
    headers = {} if date_s is None else {"Date": email.utils.formatdate(date_s, usegmt=True)}

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/healthz":
            return httpx.Response(200, headers=headers)
        return httpx.Response(status, json=nodes)

    return client(answer)


def by_name(findings: object) -> dict[str, Finding]:
    return {finding.name: finding for finding in findings}  # type: ignore[attr-defined]


def free_ports(count: int) -> tuple[int, list[socket.socket]]:
    """A range of ports in which nothing listens but what is returned, which holds its first."""
    while True:
        first = socket.create_server(("127.0.0.1", 0))
        port = first.getsockname()[1]
        rest: list[socket.socket] = []
        try:
            rest = [socket.create_server(("127.0.0.1", port + n)) for n in range(1, count)]
        except (OSError, OverflowError):
            first.close()
            continue
        finally:
            for held in rest:
                held.close()
        return port, [first]


def accept_one(listener: socket.socket) -> None:
    """Somebody who answers, and is not one of ours."""
    listener.accept()[0].close()


def test_a_healthy_server_is_three_times_ok() -> None:
    with server(200, date_s=999.6, nodes={"role": "agent"}) as there:
        found = by_name(check_server(there, now_s=lambda: 1000.0))
    assert {name: finding.ok for name, finding in found.items()} == {
        "server": True,
        "clock": True,
        "token": True,
    }


def test_a_server_that_is_not_there_is_one_finding_with_a_remedy() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused")

    with client(answer) as there:
        (finding,) = check_server(there)
    assert not finding.ok
    assert "BACE_URL" in finding.fix


@pytest.mark.parametrize(
    ("status", "body", "ok"),
    [
        (200, {"role": "agent"}, True),
        (200, {"role": "viewer"}, False),
        (200, ["not", "ours"], False),
        (401, {}, False),
        (404, {}, False),
    ],
)
def test_the_token_is_an_agents_or_not(status: int, body: object, ok: bool) -> None:
    with server(status, nodes=body) as there:
        finding = by_name(check_server(there))["token"]
    assert finding.ok is ok
    assert bool(finding.fix) is not ok


@pytest.mark.parametrize(("offset_s", "word"), [(30.0, "ahead of"), (-30.0, "behind")])
def test_clocks_that_differ_are_told(offset_s: float, word: str) -> None:
    with server(date_s=1000.0) as there:
        finding = by_name(check_server(there, now_s=lambda: 1000.5 + offset_s))["clock"]
    assert not finding.ok
    assert finding.detail == f"30 s {word} the server's"
    assert "chrony" in finding.fix


def test_the_work_folder_and_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    assert [f.ok for f in check_work_dir(settings(tmp_path / "file" / "x"))] == [False]
    monkeypatch.setattr(doctor, "MIN_FREE_BYTES", 1.0)
    assert [f.ok for f in check_work_dir(settings(tmp_path / "a"))] == [True, True]
    monkeypatch.setattr(doctor, "MIN_FREE_BYTES", 1e18)
    found = by_name(check_work_dir(settings(tmp_path / "a")))
    assert not found["disk"].ok
    assert "Free some" in found["disk"].fix


def settings(work_dir: Path, *nodes: NodeSettings) -> AgentSettings:
    return AgentSettings(URL, "t", work_dir, work_dir / "secrets", nodes, 1.0, stop_workers_on_exit=False)


def test_devices_that_are_not_there() -> None:
    assert check_devices(node(memory="2GB"), (), URL).detail == "2 × cpu-slot, 2.0 GB, 1.5-10 W each"
    finding = check_devices(node(cpu_slots=None), (), URL)
    assert not finding.ok
    assert "--cpu-slots" in finding.fix


def test_addresses_and_interfaces() -> None:
    assert [f.ok for f in check_address(node(interface="lo"), URL)] == [True, True]
    foreign, interface = check_address(node(address="203.0.113.7", interface="no0"), URL)
    assert not foreign.ok
    assert "127.0.0.1" in foreign.detail
    assert not interface.ok
    assert "lo" in interface.fix


def test_ports_that_are_taken_are_named_and_some_may_be() -> None:
    port, held = free_ports(3)
    try:
        found = check_ports(node(ports=f"{port}-{port + 2}"))
        assert found.ok
        assert found.detail == f"2 of 3 free in {port}-{port + 2}; taken: {port}"
        assert not check_ports(node(ports=f"{port}-{port}")).ok
        assert check_ports(node(ports=f"{port}-{port}"), listening_on={port}).ok
    finally:
        held[0].close()


def test_two_doctors_find_each_other_by_name() -> None:
    port, held = free_ports(1)
    held[0].close()
    with listening([node("node-b", ports=f"{port}-{port}")]) as where:
        assert where == {"node-b": port}
        assert check_peer(Peer("node-b", "127.0.0.1", port)).detail.endswith("node-b answers")
        mistaken = check_peer(Peer("node-c", "127.0.0.1", port))
        assert not mistaken.ok
        assert "node node-b answers" in mistaken.detail
    gone = check_peer(Peer("node-b", "127.0.0.1", port))
    assert gone.ok
    assert "nothing listens" in gone.detail
    assert "listen" in gone.fix


def test_a_peer_that_is_something_else_or_not_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        closing = threading.Thread(target=accept_one, args=(other,))
        closing.start()
        finding = check_peer(Peer("node-b", "127.0.0.1", port))
        closing.join()
    assert finding.ok
    assert "something answers" in finding.detail
    unknown = check_peer(Peer("node-b", "no-such-host.invalid", 29500))
    assert not unknown.ok
    assert "--address" in unknown.fix


def test_peers_come_from_the_server_where_it_shows_them() -> None:
    item = {"node_id": "node-b", "address": "10.0.0.2", "port_first": 29500, "more": 1}
    with server(200, nodes={"items": [item]}) as there:
        assert known_peers(there) == [Peer("node-b", "10.0.0.2", 29500)]
    with server(403, nodes={"detail": "no"}) as there:
        assert known_peers(there) is None


def test_without_the_server_nothing_is_known_of_peers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused")

    monkeypatch.setattr(doctor, "check_torch", lambda: Finding("torch", True, "2.13"))
    with client(answer) as there:
        found = by_name(examine(settings(tmp_path, node()), there, (), [], ()))
    assert (found["peers"].ok, found["peers"].fix) == (
        False,
        "Name the nodes to look for by --peer ADDRESS:PORT",
    )


def test_a_peer_at_our_own_port_is_this_machine() -> None:
    port, held = free_ports(1)
    held[0].close()
    with listening([node("node-a", ports=f"{port}-{port}")]):
        finding = check_peer(Peer("node-a-as-the-server-knows-it", "127.0.0.1", port), own={"node-a"})
    assert finding.ok
    assert "this machine" in finding.detail


def test_torch_that_cannot_be_loaded_comes_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho 'No module named torch' >&2\nexit 1\n")
    python.chmod(0o755)
    monkeypatch.setattr(doctor.sys, "executable", str(python))
    finding = check_torch()
    assert (finding.ok, finding.detail) == (False, "No module named torch")
    assert "bacepipe[worker]" in finding.fix
    python.write_text("#!/bin/sh\necho 2.13.0\n")
    assert check_torch().detail == f"torch 2.13.0 with {python}"


def test_the_whole_examination(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "check_torch", lambda: Finding("torch", True, "2.13"))
    port, held = free_ports(1)
    items = [{"node_id": name, "address": "127.0.0.1", "port_first": port} for name in ("node-a", "node-b")]
    with held[0], server(200, date_s=0.0, nodes={"items": items, "role": "agent"}) as there:
        who = settings(tmp_path / "a", node(ports=f"{port}-{port}"))
        threading.Thread(target=accept_one, args=(held[0],)).start()
        found = by_name(examine(who, there, (), [Peer("", "127.0.0.1", 1)], {port}))
    expected = {"server", "clock", "token", "work folder", "disk", "torch", "devices of node-a",
                "address of node-a", "ports of node-a", "reach 127.0.0.1", "reach node-b"}  # fmt: skip
    assert set(found) == expected, "its own node is not a peer"
    assert all(finding.fix for finding in found.values() if not finding.ok)
