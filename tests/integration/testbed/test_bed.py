"""A bed is what was asked for, and leaves nothing behind, however it ends. Needs root: it makes network namespaces."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

from service.cli.testbed import namespaces
from service.cli.testbed.__main__ import main as by_hand
from service.cli.testbed.bed import Bed, BedError, bed_of
from service.cli.testbed.measure import measure, message_s
from service.cli.testbed.namespaces import Namespace
from service.cli.testbed.network import Link, Network


def may_make_beds() -> str:
    """Why this user may not; empty if they may."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "network namespaces need Linux and root"
    try:
        with bed_of(Network(regions=("alone",))):
            return ""
    except BedError as error:
        return f"no bed can be made here: {error}"


pytestmark = pytest.mark.xdist_group("testbed")

THERE = Link(src="london", dst="paris", latency_ms=30, mbps=40)
BACK = Link(src="paris", dst="london", latency_ms=10, mbps=80)
NETWORK = Network(regions=("london", "paris"), links=(THERE, BACK))
LATE_MS = 15.0
"""On a busy machine; on an idle one it is a quarter of a millisecond."""


@pytest.fixture(scope="module", autouse=True)
def _root() -> None:
    if why := may_make_beds():
        pytest.skip(why)


@pytest.fixture(scope="module")
def bed() -> Iterator[Bed]:
    with bed_of(NETWORK) as made:
        yield made


@pytest.mark.parametrize("link", [THERE, BACK], ids=["there", "back"])
def test_each_direction_has_its_latency_and_its_bandwidth(bed: Bed, link: Link) -> None:
    measured = measure(bed, link)
    assert link.latency_ms <= measured.measured_latency_ms < link.latency_ms + LATE_MS
    assert 0.8 * link.mbps < measured.measured_mbps <= 1.05 * link.mbps


def test_a_message_takes_its_bits_over_the_bandwidth_and_the_latency(bed: Bed) -> None:
    message_bytes = 100_000
    expected_s = message_bytes * 8 / (THERE.mbps * 1e6) + THERE.latency_ms / 1e3
    assert expected_s < message_s(bed, THERE, message_bytes) < expected_s + LATE_MS / 1e3


def test_a_link_can_change_while_it_carries(bed: Bed) -> None:
    slower = THERE.model_copy(update={"latency_ms": 60.0})
    bed.change(slower)
    try:
        assert 0.06 <= message_s(bed, slower, 1) < 0.06 + LATE_MS / 1e3
    finally:
        bed.change(THERE)


def test_regions_see_each_other_and_nothing_else(bed: Bed) -> None:
    with ExitStack() as opened:
        outside = opened.enter_context(socket.create_server(("127.0.0.1", 0)))
        with bed.namespace("london").inside():
            probe = opened.enter_context(socket.socket())
        with pytest.raises(ConnectionRefusedError):
            probe.connect(outside.getsockname())


def test_a_program_in_a_region_ends_with_the_bed() -> None:
    with bed_of(NETWORK) as bed:
        space = bed.namespace("paris")
        program = subprocess.Popen([*space.prefix, "sleep", "1000"])
        until(lambda: psutil.Process(program.pid).name() == "sleep")
    assert program.wait(10) == -signal.SIGTERM
    assert of_keeper(space.keeper) == []
    assert not psutil.pid_exists(space.keeper)


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_however_the_user_of_a_bed_ends(end: signal.Signals) -> None:
    script = f"""
import signal, time
from service.cli.testbed.bed import bed_of
from service.cli.testbed.network import Network
signal.signal(signal.SIGINT, signal.default_int_handler)
with bed_of(Network.model_validate_json({NETWORK.model_dump_json()!r})) as bed:
    print(bed.namespace("london").keeper, flush=True)
    time.sleep(1000)
"""
    user = subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
    )
    assert user.stdout is not None
    keeper = int(user.stdout.readline())
    assert len(of_keeper(keeper)) == 2
    user.send_signal(end)
    user.communicate(timeout=30)
    until(lambda: of_keeper(keeper) == [])


def test_what_a_killed_keeper_has_left_goes_with_the_next_bed() -> None:
    with bed_of(NETWORK) as bed:
        keeper = bed.namespace("london").keeper
        psutil.Process(keeper).kill()
        until(lambda: psutil.Process(keeper).status() == psutil.STATUS_ZOMBIE)
        assert len(of_keeper(keeper)) == 2
        with bed_of(Network(regions=("alone",))):
            assert of_keeper(keeper) == []


def test_a_bed_that_cannot_be_finished_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The second namespace of the bed cannot be made: the first is taken away again."""
    real = subprocess.run(["which", "ip"], check=True, capture_output=True, text=True).stdout.strip()
    broken = tmp_path / "ip"
    broken.write_text(
        f'#!/bin/sh\ncase "$*" in "netns add "*paris) echo no room >&2; exit 1;; esac\nexec {real} "$@"\n'
    )
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    network = Network(regions=("halfway", "paris"))
    with pytest.raises(BedError, match="no room"), bed_of(network):
        pass
    assert not [space for space in namespaces.existing() if space.region == "halfway"]


def test_a_door_leads_from_each_region_to_a_server_on_the_hosts_loopback(bed: Bed) -> None:
    with ExitStack() as opened:
        server = opened.enter_context(socket.create_server(("127.0.0.1", 0)))
        port = server.getsockname()[1]
        names = [bed.namespace(region).name for region in bed.network.regions]
        door = subprocess.Popen([sys.executable, "-m", "service.cli.testbed.door", str(port), *names])
        opened.callback(door.wait)
        opened.callback(door.terminate)
        for region in bed.network.regions:
            near = opened.enter_context(connected(bed, region, port))
            far = opened.enter_context(server.accept()[0])
            far.settimeout(30)
            near.sendall(b"question")
            assert far.recv(100) == b"question"
            far.sendall(b"answer")
            assert near.recv(100) == b"answer"


def connected(bed: Bed, region: str, port: int) -> socket.socket:
    """A connection from inside the region, once somebody listens there."""
    made: list[socket.socket] = []

    def connect() -> bool:
        with bed.namespace(region).inside():
            near = socket.socket()
        near.settimeout(30)
        try:
            near.connect(("127.0.0.1", port))
        except ConnectionRefusedError:
            near.close()
            return False
        made.append(near)
        return True

    until(connect)
    return made[0]


def test_a_bed_by_hand_is_up_until_it_is_taken_down(tmp_path: Path) -> None:
    description = tmp_path / "bed.yaml"
    description.write_text(f"{{regions: [london, paris], links: [{as_yaml(THERE)}, {as_yaml(BACK)}]}}")
    assert by_hand(["down"]) == 0
    try:
        assert program("up", str(description)).startswith("london: 198.18.0.1\nparis: 198.18.0.2\n")
        assert by_hand(["up", str(description)]) == 1
        said = program("exec", "paris", "--", "ip", "-br", "address")
        assert "198.18.0.2 peer 198.18.0.1/32" in said
        assert by_hand(["exec", "mars", "--", "true"]) == 1
    finally:
        assert by_hand(["down"]) == 0
    assert by_hand(["exec", "paris", "--", "true"]) == 1


def program(*arguments: str) -> str:
    """What it prints, run to its end."""
    words = [sys.executable, "-m", "service.cli.testbed", *arguments]
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


def as_yaml(link: Link) -> str:
    return "{" + ", ".join(f"{name}: {value}" for name, value in link.model_dump().items()) + "}"


def of_keeper(keeper: int) -> list[Namespace]:
    return [space for space in namespaces.existing() if space.keeper == keeper]


def until(condition: Callable[[], bool], within_s: float = 30.0) -> None:
    deadline_s = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.02)
