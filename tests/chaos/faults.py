"""The injector: from a seed, which fault comes when, on whom, and for how long. Each heals by itself, or at the end.

A node, the servers and Redis have one fault at a time each; faults of different ones overlap as they come.
"""

from __future__ import annotations

import heapq
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import count

import httpx
import psutil

from agents.lease import boot_clock_s
from tests.chaos.programs import Program, send, worker_processes
from tests.chaos.site import LEADER_LEASE_S, LEASE_S, NODE_LOST_AFTER_S, Node, Site

LONGER_THAN_A_LEASE_S = (LEASE_S + 1.0, LEASE_S + 4.0)
LONGER_THAN_LOST_S = (NODE_LOST_AFTER_S + 1.0, NODE_LOST_AFTER_S + 5.0)
BETWEEN_FAULTS_S = (1.0, 5.0)
TRY_ANOTHER_S = 0.3
Undo = Callable[[], None]


@dataclass(order=True)
class _Due:
    at_s: float
    number: int
    undo: Undo = field(compare=False)


@dataclass(frozen=True, slots=True)
class Sleep:
    """A whole node that slept, its supervisors too: until when, on the clock since boot."""

    pids: frozenset[int]
    woken_at_s: float


class Injector:
    """Does harm, one `step` after the other."""

    def __init__(self, site: Site, seed: int) -> None:
        self._site = site
        self._dice = random.Random(seed)
        self._numbers = count()
        self._due: list[_Due] = []
        self._busy: set[str] = set()
        self._next_s = time.monotonic()
        self._round: list[str] = []
        """Kinds that are to come before any comes again."""
        self.done: Counter[str] = Counter()
        self.sleeps: list[Sleep] = []
        """Of whole nodes."""
        self._kinds = self._possible()

    @property
    def kinds(self) -> tuple[str, ...]:
        """The faults that are possible here."""
        return tuple(self._kinds)

    def step(self) -> None:
        """Undo what has lasted long enough; do the next harm if it is time."""
        now_s = time.monotonic()
        while self._due and self._due[0].at_s <= now_s:
            heapq.heappop(self._due).undo()
        if now_s < self._next_s:
            return
        if not self._round:
            self._round = self._dice.sample(self.kinds, len(self.kinds))
        kind = self._round.pop(0)
        if self._kinds[kind]():
            self.done[kind] += 1
            self._next_s = now_s + self._dice.uniform(*BETWEEN_FAULTS_S)
        else:  # nobody is there to suffer it: another comes first
            self._round.append(kind)
            self._next_s = now_s + TRY_ANOTHER_S

    def heal(self) -> None:
        """Undo everything at once."""
        while self._due:
            heapq.heappop(self._due).undo()

    def _possible(self) -> Mapping[str, Callable[[], bool]]:
        site = self._site
        kinds: dict[str, Callable[[], bool]] = {
            "server killed": lambda: self._kill(self._dice.choice(site.servers), "servers"),
            "server paused": lambda: self._pause(self._dice.choice(site.servers), "servers"),
            "agent killed": lambda: self._on_node(self._kill_agent),
            "agent paused": lambda: self._on_node(self._pause_agent),
            "supervisor killed": lambda: self._on_node(self._kill_supervisor),
            "supervisor paused": lambda: self._on_node(self._pause_supervisor),
            "worker killed": lambda: self._on_node(self._kill_worker),
            "worker paused": lambda: self._on_node(self._pause_worker),
            "node killed": lambda: self._on_node(self._kill_node),
            "node paused": lambda: self._on_node(self._pause_node),
            "partition": lambda: self._on_node(self._cut_both),
            "partition of requests": lambda: self._on_node(self._cut_requests),
            "partition of answers": lambda: self._on_node(self._cut_answers),
        }
        if len(site.servers) > 1:
            kinds["leader killed"] = lambda: self._on_leader(lambda leader: self._kill(leader, "servers"))
            kinds["leader paused"] = lambda: self._on_leader(lambda leader: self._pause(leader, "servers"))
        if site.redis is not None:
            redis = site.redis
            kinds["redis killed"] = lambda: self._kill(redis, "redis")
            kinds["redis paused"] = lambda: self._pause(redis, "redis")
        if site.home_disk is not None:
            kinds["database's disk full"] = self._fill_database
        if all(node.disk is not None for node in site.nodes):
            kinds["agent's disk full"] = lambda: self._on_node(self._fill_node)
        return kinds

    def _for(self, what: str, seconds: float, undo: Undo) -> bool:
        """The harm lasts so long; until then `what` has no other."""
        self._busy.add(what)

        def healed() -> None:
            undo()
            self._busy.discard(what)

        heapq.heappush(self._due, _Due(time.monotonic() + seconds, next(self._numbers), healed))
        return True

    def _kill(self, program: Program, what: str) -> bool:
        if what in self._busy or not program.runs:
            return False
        program.kill()
        return self._for(what, self._dice.uniform(0.0, 4.0), program.start)

    def _pause(self, program: Program, what: str) -> bool:
        if what in self._busy or not program.runs:
            return False
        program.signal(signal.SIGSTOP)
        lasts_s = self._dice.uniform(max(LEASE_S, LEADER_LEASE_S) + 1.0, LONGER_THAN_LOST_S[0])
        return self._for(what, lasts_s, lambda: program.signal(signal.SIGCONT))

    def _on_leader(self, harm: Callable[[Program], bool]) -> bool:
        for port, server in zip(self._site.ports, self._site.servers, strict=True):
            try:
                url = f"http://127.0.0.1:{port}/metrics"
                page = self._site.http.get(url, headers=self._site.headers(), timeout=1).text
            except httpx.HTTPError:
                continue
            if "\nbace_leader 1" in page:
                return harm(server)
        return False

    def _on_node(self, harm: Callable[[Node], bool]) -> bool:
        whole = [node for node in self._site.nodes if node.name not in self._busy]
        return bool(whole) and harm(self._dice.choice(whole))

    def _kill_agent(self, node: Node) -> bool:
        node.agent.kill()
        return self._for(node.name, self._dice.uniform(0.0, LONGER_THAN_A_LEASE_S[1]), node.agent.start)

    def _pause_agent(self, node: Node) -> bool:
        node.agent.signal(signal.SIGSTOP)
        lasts_s = self._dice.uniform(*LONGER_THAN_A_LEASE_S)
        return self._for(node.name, lasts_s, lambda: node.agent.signal(signal.SIGCONT))

    def _kill_supervisor(self, node: Node) -> bool:
        return self._kill_one(worker_processes(node.folder)[0])

    def _kill_worker(self, node: Node) -> bool:
        return self._kill_one(worker_processes(node.folder)[1])

    def _kill_one(self, processes: list[psutil.Process]) -> bool:
        if not processes:
            return False
        send([self._dice.choice(processes)], signal.SIGKILL)
        return True

    def _pause_supervisor(self, node: Node) -> bool:
        return self._pause_one(node, worker_processes(node.folder)[0])

    def _pause_worker(self, node: Node) -> bool:
        return self._pause_one(node, worker_processes(node.folder)[1])

    def _pause_one(self, node: Node, processes: list[psutil.Process]) -> bool:
        if not processes:
            return False
        chosen = [self._dice.choice(processes)]
        send(chosen, signal.SIGSTOP)
        lasts_s = self._dice.uniform(*LONGER_THAN_A_LEASE_S)
        return self._for(node.name, lasts_s, lambda: send(chosen, signal.SIGCONT))

    def _kill_node(self, node: Node) -> bool:
        node.agent.kill()
        for processes in worker_processes(node.folder):
            send(processes, signal.SIGKILL)
        return self._for(node.name, self._dice.uniform(0.0, LONGER_THAN_LOST_S[1]), node.agent.start)

    def _pause_node(self, node: Node) -> bool:
        # Supervisors first: a worker that one of them starts meanwhile is found in the list of workers.
        node.agent.signal(signal.SIGSTOP)
        send(worker_processes(node.folder)[0], signal.SIGSTOP)
        supervisors, workers = worker_processes(node.folder)
        send(workers, signal.SIGSTOP)

        def wake() -> None:
            self.sleeps.append(Sleep(frozenset(process.pid for process in workers), boot_clock_s()))
            for processes in (supervisors, workers):
                send(processes, signal.SIGCONT)
            node.agent.signal(signal.SIGCONT)

        return self._for(node.name, self._dice.uniform(LONGER_THAN_A_LEASE_S[0], LONGER_THAN_LOST_S[1]), wake)

    def _cut_both(self, node: Node) -> bool:
        lasts_s = self._dice.uniform(1.0, LONGER_THAN_LOST_S[1])
        if node.namespace is not None:
            node.namespace.cut()
            return self._for(node.name, lasts_s, node.namespace.mend)
        node.relay.cut(to_server=True, to_agent=True)
        return self._for(node.name, lasts_s, node.relay.mend)

    def _cut_requests(self, node: Node) -> bool:
        node.relay.cut(to_server=True, to_agent=False)
        return self._for(node.name, self._dice.uniform(1.0, LONGER_THAN_LOST_S[1]), node.relay.mend)

    def _cut_answers(self, node: Node) -> bool:
        node.relay.cut(to_server=False, to_agent=True)
        return self._for(node.name, self._dice.uniform(1.0, LONGER_THAN_LOST_S[1]), node.relay.mend)

    def _fill_database(self) -> bool:
        disk = self._site.home_disk
        if disk is None or "servers" in self._busy:
            return False
        disk.fill()
        return self._for("servers", self._dice.uniform(2.0, LONGER_THAN_A_LEASE_S[1]), disk.empty)

    def _fill_node(self, node: Node) -> bool:
        if node.disk is None:
            return False
        node.disk.fill()
        return self._for(node.name, self._dice.uniform(2.0, LONGER_THAN_A_LEASE_S[1]), node.disk.empty)
