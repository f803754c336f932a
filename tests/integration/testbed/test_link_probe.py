"""Agents measure a slow link as it is. Needs root: the two ends stand in network namespaces."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator
from queue import Queue

import pytest

from agents.errors import LinkProbeError
from agents.link_probe import probe
from agents.link_probe_listener import listen_once
from agents.link_probe_wire import Surroundings
from agents.protocol import LinkTest, LinkTestReport
from service.cli.testbed.bed import Bed, bed_of
from service.cli.testbed.network import Link, Network
from tests.integration.testbed.test_bed import may_make_beds

pytestmark = pytest.mark.xdist_group("testbed")

THERE = Link(src="london", dst="paris", latency_ms=30, mbps=20)
BACK = Link(src="paris", dst="london", latency_ms=10, mbps=40)
TOLERATED = 0.1
LATE_S = 0.015
"""On a busy machine."""
PORTS = itertools.count(29600)


@pytest.fixture(scope="module")
def bed() -> Iterator[Bed]:
    if why := may_make_beds():
        pytest.skip(why)
    with bed_of(Network(regions=("london", "paris"), links=(THERE, BACK))) as made:
        yield made


class Ends:
    """Both ends of a measurement, each in a thread that stands in its region."""

    def __init__(self, bed: Bed, link: Link, **changes: object) -> None:
        numbers = itertools.count(1)
        self.stopped = threading.Event()
        self._surroundings = Surroundings(time.monotonic, lambda: f"{next(numbers):032x}")
        self._opened = threading.Event()
        self._ended: Queue[LinkTestReport | LinkProbeError | None] = Queue()
        values: dict[str, object] = {
            "test_id": "linktest-1",
            "address": bed.address(link.dst),
            "port": next(PORTS),
            "token": "t" * 43,
            "streams": 4,
            "max_bytes": 10**9,
            "max_s": 3.0,
            "open_s": 20.0,
        }
        self._threads = [
            threading.Thread(target=self._run, args=(bed, link, role, {**values, **changes}))
            for role in ("listen", "connect")
        ]

    def __enter__(self) -> Ends:
        self._threads[0].start()
        assert self._opened.wait(10)
        self._threads[1].start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stopped.set()
        for thread in self._threads:
            thread.join(30)
            assert not thread.is_alive()

    def ended(self) -> LinkTestReport | LinkProbeError | None:
        return self._ended.get(timeout=60)

    def _run(self, bed: Bed, link: Link, role: str, values: dict[str, object]) -> None:
        test = LinkTest.model_validate({**values, "role": role})
        with bed.namespace(link.dst if role == "listen" else link.src).inside():
            try:
                if role == "listen":
                    listen_once(test, self._surroundings, self.stopped, self._opened.set)
                    self._ended.put(None)
                else:
                    self._ended.put(probe(test, self._surroundings, self.stopped))
            except LinkProbeError as error:
                self._ended.put(error)


@pytest.mark.parametrize("link", [THERE, BACK], ids=["there", "back"])
def test_bandwidth_is_found_within_a_tenth_and_latency_is_half_the_round_trip(bed: Bed, link: Link) -> None:
    with Ends(bed, link) as ends:
        told = next(found for found in (ends.ended(), ends.ended()) if found is not None)
    assert isinstance(told, LinkTestReport), told
    assert told.bandwidth_bps == pytest.approx(link.mbps * 1e6, rel=TOLERATED)
    assert not told.is_floor
    assert told.latency_s is not None
    assert 0.02 <= told.latency_s < 0.02 + LATE_S, "30 ms there and 10 ms back"


def test_a_measurement_that_is_broken_off_ends_at_both_ends(bed: Bed) -> None:
    with Ends(bed, THERE, max_s=60.0) as ends:
        ends.stopped.set()
        found = [ends.ended(), ends.ended()]
    assert [type(each) for each in found] == [LinkProbeError, LinkProbeError]
