"""One agent: the real daemon, journal, lease, reconciling and client, on a simulated machine."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path

import httpx

from agents.client import ServerClient
from agents.daemon import Agent, Identity
from agents.environment import Devices, EnvironmentBuilder
from agents.errors import JournalError
from agents.identity import Credentials
from agents.journal import Journal
from agents.lease import Lease
from agents.processes import ProcessTable
from agents.protocol import GpuTypeOffer, NodeOffer
from agents.state import AgentState
from tests.simulation.bridge import aside, blocking
from tests.simulation.clocks import Gate
from tests.simulation.disk import IdentityOnDisk, PowerCut
from tests.simulation.door import REFUSALS
from tests.simulation.host import Host, HostLauncher
from tests.simulation.network import Network
from tests.simulation.replica import COMMIT
from tests.simulation.trace import Trace

NOTICES_S = 0.2
"""The daemon looks at its processes that often."""
URL = "http://bace.simulated"
WORTH_COUNTING = {
    "adopted a worker": "a restarted agent adopted a running worker",
    "the journal cannot be written": "an agent met a full disk and went on",
}


class Wire(httpx.BaseTransport):
    """The agent's connection: the simulated network, from inside the blocking code."""

    def __init__(self, host: Host, network: Network, gate: Gate, silent_after_s: float) -> None:
        self._host = host
        self._network = network
        self._gate = gate
        self._silent_after_s = silent_after_s
        self._heard_at_s: float | None = None

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        answer = aside(self._network.send(self._host.name, request))
        aside(self._gate.through())
        self._host.obeys_commit = answer.extensions.get(COMMIT, 0)
        identity, shown = self._host.disk.identity, request.headers["Authorization"]
        if answer.is_success:
            self._heard()
        elif answer.status_code in REFUSALS and identity is not None and identity.token in shown:
            self._network.door.judge_refusal(identity)
        return answer

    def _heard(self) -> None:
        now_s = self._host.loop.time()
        silent_s = 0.0 if self._heard_at_s is None else now_s - self._heard_at_s
        works_on = any(worker.folder.stop_cause is None for worker in self._host.alive.values())
        if silent_s > self._silent_after_s and works_on:
            self._host.trace.sometimes("a node came back within grace and kept its work")
        self._heard_at_s = now_s


class Told:
    """`agents.processes.Log`: into the trace."""

    def __init__(self, trace: Trace, name: str, refused: Callable[[bool], None]) -> None:
        self._trace = trace
        self._name = name
        self._refused = refused

    def info(self, event: str, **fields: object) -> None:
        self._trace.add(f"{self._name}: {event} {fields.get('key', '')}")
        if event in WORTH_COUNTING:
            self._trace.sometimes(WORTH_COUNTING[event])
        if event in ("joined", "the server refuses this agent"):
            self._refused(event != "joined")

    warning = error = info


class SimulatedAgent:
    """The lives of one agent. `run` is its task: it ends by cancellation alone."""

    def __init__(
        self,
        host: Host,
        region: str,
        token: str,
        network: Network,
        trace: Trace,
        dice: random.Random,
        silent_after_s: float,
    ) -> None:
        """`silent_after_s`: one that was not answered for so long was silent."""
        self.host = host
        self._silent_after_s = silent_after_s
        self.gate = Gate()
        self.lives = 0
        self._region = region
        self.given = token
        """What its operator has given it to join with."""
        self.was_refused = False
        self._network = network
        self._trace = trace
        self._dice = dice
        self._woken = asyncio.Event()
        self._life: asyncio.Task[None] | None = None
        self._stays_down_s = 0.0
        host.news = self._notice

    async def run(self) -> None:
        """One life after the other."""
        while True:
            self._life = asyncio.get_running_loop().create_task(self._live())
            try:
                await asyncio.wait({self._life})
            except asyncio.CancelledError:
                self._life.cancel()
                raise
            if not self._life.cancelled() and self._life.exception() is not None:
                self._trace.violation("an agent never dies by itself", repr(self._life.exception()))
            await asyncio.sleep(self._stays_down_s or self._dice.uniform(0.5, 5.0))
            self._stays_down_s = 0.0

    def kill(self, *, with_machine: bool = False, stays_down_s: float = 0.0) -> None:
        """kill -9 of the daemon, or the power of its machine: what runs goes on in the one case, ends in the other."""
        self._stays_down_s = stays_down_s
        if self._life is not None:
            self._life.cancel()
        if with_machine:
            self.host.reboot()

    async def _live(self) -> None:
        """From a start to a death by the power."""
        self.lives += 1
        try:
            agent, state, lease = self._put_together()
            while True:
                await self.gate.through()
                await blocking(agent.step)
                await self._wait(agent, state, lease)
        except PowerCut:
            if self._dice.random() < 0.4:
                self.host.reboot()

    def _put_together(self) -> tuple[Agent, AgentState, Lease]:
        host, log = self.host, Told(self._trace, self.host.name, self._refused)
        torn = host.disk.torn
        try:
            state = AgentState(Journal(Path("/agent/journal"), host.disk.open_journal))
        except JournalError as error:
            self._trace.violation("a torn journal is read", str(error))
            raise
        if torn:
            self._trace.sometimes("a torn journal was read again")
            host.disk.torn = 0
        devices = {host.name: Devices(uuids=host.gpus)}
        builder = EnvironmentBuilder({}, Path("/agent/secrets"))
        table = ProcessTable(state, HostLauncher(host), host, devices, builder, host.clock, log)  # type: ignore[arg-type]
        for process in table.alive:
            log.info("adopted a worker", key=process.key)
        lease = Lease("", lambda _: host)
        identity = Identity(f"agent-{host.name}", f"life-{self.lives}", "0.1.0", (self.offer(),))
        credentials = Credentials(self.given, IdentityOnDisk(host.disk))
        wire = Wire(host, self._network, self.gate, self._silent_after_s)
        client = ServerClient(URL, credentials.token, transport=wire)
        slots = {host.name: len(host.gpus)}
        agent = Agent(identity, client, state, table, lease, slots, host.clock, log, self._dice, credentials)
        return agent, state, lease

    def offer(self) -> NodeOffer:
        gpu = GpuTypeOffer(
            name="simulated",
            memory_bytes=8e9,
            power_w=20.0,
            idle_w=5.0,
            sustained_flops=2e10,
            measured_at_s=1.0,
        )
        return NodeOffer(
            node_id=self.host.name,
            region=self._region,
            gpu=gpu,
            gpus=len(self.host.gpus),
            address=f"{self.host.name}.simulated",
            port_first=29500,
            port_last=29509,
        )

    async def _wait(self, agent: Agent, state: AgentState, lease: Lease) -> None:
        """Until there is something to do: the daemon looks all the time, and finds nothing in between."""
        clock, loop = self.host.clock, asyncio.get_running_loop()
        now_s = clock.boot_s()
        due_s = agent.next_call_s
        left_s = lease.remaining_s(now_s)
        if left_s > 0 and any(not process.ended for process in state.processes.values()):
            due_s = min(due_s, now_s + left_s)
        timer = loop.call_at(max(loop.time(), clock.when(due_s)) + 1e-3, self._woken.set)
        try:
            await self._woken.wait()
        finally:
            timer.cancel()
        self._woken.clear()

    def _refused(self, refused: bool) -> None:
        self.was_refused = refused

    def _notice(self) -> None:
        asyncio.get_running_loop().call_later(self._dice.uniform(0.0, NOTICES_S), self._woken.set)
