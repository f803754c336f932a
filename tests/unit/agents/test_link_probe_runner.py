"""Which measurements an agent takes part in, and what it tells of them."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from itertools import count

import pytest

from agents.link_probe_runner import AT_ONCE, LinkTests
from agents.link_probe_wire import Surroundings
from agents.protocol import GpuTypeOffer, LinkTest, LinkTestReport, NodeOffer


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def link_test(number: int = 1, **changes: object) -> LinkTest:
    values: dict[str, object] = {
        "test_id": f"linktest-{number}",
        "role": "listen",
        "address": "127.0.0.1",
        "port": free_port(),
        "token": "t" * 43,
        "streams": 0,
        "max_bytes": 0,
        "max_s": 0.0,
        "open_s": 30.0,
    }
    return LinkTest.model_validate({**values, **changes})


class Observed(LinkTests):
    """The same, and whoever waits for a report is woken by it."""

    has_told: threading.Event

    def told(self, report: LinkTestReport) -> None:
        super().told(report)
        self.has_told.set()


class Side:
    """One agent's measurements, and the threads in which they run."""

    def __init__(self, address: str = "127.0.0.1") -> None:
        self.log: list[str] = []
        self.threads: list[threading.Thread] = []
        numbers = count(1)
        gpu = GpuTypeOffer(
            name="cpu-slot", memory_bytes=1e9, power_w=1, idle_w=1, sustained_flops=1e9, measured_at_s=1
        )
        node = NodeOffer(
            node_id="node-a",
            region="eu",
            gpu=gpu,
            gpus=1,
            address=address,
            port_first=1024,
            port_last=65535,
        )
        self.tests = Observed(
            [node], Surroundings(time.monotonic, lambda: f"{next(numbers):032x}"), self._spawn, self
        )
        self.tests.has_told = threading.Event()

    def _spawn(self, work: Callable[[], None]) -> None:
        thread = threading.Thread(target=work)
        self.threads.append(thread)
        thread.start()

    def info(self, event: str, **fields: object) -> None:
        self.log.append(event)

    warning = error = info

    def until_told(self, state: str) -> None:
        """Until something is told, which has to be that."""
        assert self.tests.has_told.wait(20), "nobody tells anything"
        self.tests.has_told.clear()
        assert state in [report.state for report in self.tests.reports()]

    def join(self) -> None:
        for thread in self.threads:
            thread.join(20)
            assert not thread.is_alive()


@pytest.fixture
def sides() -> Iterator[tuple[Side, Side]]:
    made = Side(), Side()
    yield made
    for side in made:
        side.tests.obey(())
        side.join()


def test_two_agents_measure_when_they_are_told_to(sides: tuple[Side, Side]) -> None:
    far, near = sides
    test = link_test()
    far.tests.obey([test])
    far.until_told("listening")
    near.tests.obey([test.model_copy(update={"role": "connect"})])
    near.until_told("done")
    (told,) = near.tests.reports()
    assert (told.test_id, told.latency_s is not None) == ("linktest-1", True)
    near.tests.heard([told])
    assert near.tests.reports() == [], "it is told once"


def test_a_measurement_is_begun_once_however_often_it_is_wanted(sides: tuple[Side, Side]) -> None:
    far, _ = sides
    test = link_test()
    far.tests.obey([test])
    far.tests.obey([test])
    far.tests.obey(())
    far.join()
    far.tests.obey([test])  # an answer that was late
    assert len(far.threads) == 1


def test_what_is_no_longer_wanted_is_broken_off_and_nothing_more_is_told(sides: tuple[Side, Side]) -> None:
    far, _ = sides
    far.tests.obey([link_test()])
    far.until_told("listening")
    far.tests.heard(far.tests.reports())
    far.tests.obey(())
    far.join()
    assert far.tests.reports() == []


def test_an_address_or_port_that_was_not_advertised_is_never_listened_on(sides: tuple[Side, Side]) -> None:
    far = Side(address="192.0.2.7")
    far.tests.obey([link_test()])
    (told,) = far.tests.reports()
    assert told.state == "failed"
    assert "none of this agent's" in (told.detail or "")
    assert far.threads == []


def test_what_cannot_be_reached_is_told_with_its_reason(sides: tuple[Side, Side]) -> None:
    _, near = sides
    near.tests.obey([link_test(role="connect")])
    near.until_told("failed")
    assert "refused" in (near.tests.reports()[0].detail or "")


def test_few_run_at_once(sides: tuple[Side, Side]) -> None:
    far, _ = sides
    far.tests.obey([link_test(number) for number in range(AT_ONCE + 3)])
    assert len(far.threads) == AT_ONCE
