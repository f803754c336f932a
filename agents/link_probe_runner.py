"""The measurements that this agent takes part in, each in a thread of its own, beside the loop that beats.

The server says with every answer which ones it wants. One that it does not name any more is broken off, before
anything else of that answer is done; so is every one when the server cannot be reached. Nothing of it is kept on disk:
what a restart loses is measured again another time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from agents.errors import LinkProbeError
from agents.link_probe import probe
from agents.link_probe_listener import listen_once
from agents.link_probe_wire import Surroundings
from agents.processes import Log
from agents.protocol import LinkTest, LinkTestReport, NodeOffer

AT_ONCE = 4
REMEMBERED = 256
"""Measurements of before: an answer that comes late begins none of them again."""
DETAIL_CHARACTERS = 255
MAX_REPORTS = 16


@dataclass(slots=True)
class Running:
    """A measurement that was begun."""

    test: LinkTest
    stopped: threading.Event = field(default_factory=threading.Event)
    is_over: bool = False

    @property
    def is_wanted(self) -> bool:
        """Whether the server has named it with every answer so far."""
        return not self.stopped.is_set()


class LinkTests:
    """Begins and ends them as the server wants; holds what came of them until the server has heard it."""

    def __init__(
        self,
        nodes: Sequence[NodeOffer],
        surroundings: Surroundings,
        spawn: Callable[[Callable[[], None]], object],
        log: Log,
    ) -> None:
        """`spawn` runs a function beside the caller."""
        self._nodes = tuple(nodes)
        self._surroundings = surroundings
        self._spawn = spawn
        self._log = log
        self._running: dict[str, Running] = {}
        self._known: dict[str, None] = {}
        self._lock = threading.Lock()
        self._reports: list[LinkTestReport] = []

    @property
    def running(self) -> tuple[Running, ...]:
        """Those that were begun and are not known to be over."""
        return tuple(self._running.values())

    def obey(self, wanted: Iterable[LinkTest]) -> None:
        """These, and no others, from now on."""
        tests = {test.test_id: test for test in wanted}
        for test_id, running in list(self._running.items()):
            if test_id not in tests:
                running.stopped.set()
            if running.is_over:
                del self._running[test_id]
        for test_id, test in tests.items():
            if test_id not in self._known and len(self._running) < AT_ONCE:
                self._begin(test)

    def reports(self) -> list[LinkTestReport]:
        """What the server has not heard yet, the oldest first."""
        with self._lock:
            return self._reports[:MAX_REPORTS]

    def heard(self, reports: Sequence[LinkTestReport]) -> None:
        """The server has these, or will not have them."""
        with self._lock:
            self._reports = [report for report in self._reports if report not in reports]

    def told(self, report: LinkTestReport) -> None:
        """Something has come of a measurement: the server is to hear it."""
        with self._lock:
            self._reports.append(report)

    def _begin(self, test: LinkTest) -> None:
        self._known[test.test_id] = None
        while len(self._known) > REMEMBERED:
            del self._known[next(iter(self._known))]
        if test.role == "listen" and not self._is_ours(test):
            self._tell_failure(
                test, f"{test.address}:{test.port} is none of this agent's addresses and ports"
            )
            return
        running = self._running[test.test_id] = Running(test)
        self._spawn(lambda: self._run(running))

    def _run(self, running: Running) -> None:
        test, stopped = running.test, running.stopped
        try:
            if test.role == "listen":
                opened = LinkTestReport(test_id=test.test_id, state="listening")
                listen_once(test, self._surroundings, stopped, lambda: self.told(opened))
            else:
                self.told(probe(test, self._surroundings, stopped))
        except LinkProbeError as error:
            if not stopped.is_set():  # else the server knows
                self._tell_failure(test, str(error))
        finally:
            running.is_over = True

    def _is_ours(self, test: LinkTest) -> bool:
        return any(
            node.address == test.address and node.port_first <= test.port <= node.port_last
            for node in self._nodes
        )

    def _tell_failure(self, test: LinkTest, detail: str) -> None:
        self._log.warning("a link could not be measured", test=test.test_id, role=test.role, detail=detail)
        self.told(LinkTestReport(test_id=test.test_id, state="failed", detail=detail[:DETAIL_CHARACTERS]))
