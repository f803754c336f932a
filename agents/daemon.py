"""The agent: joins, then reports and obeys, one round trip at a time, until it is told to end.

One thread, and one beside it for each measurement of a link. A pass looks at the processes every `LOOK_EVERY_S`; a
heartbeat goes out when its interval is over, at once when a process became ready or ended or a link was measured, and
at once while reports are waiting. Everything it is told is the whole of what should run, so it needs no memory of what
it was told before.

Where many agents have begun to beat at one moment (a server that is back, an interval that was changed) the first
wait is a part of the interval that every agent has of its own, so that they spread over the whole of it and stay so.
"""

from __future__ import annotations

import hashlib
import math
import random
import threading
import time
from dataclasses import dataclass

from agents.backlog import BATCH_BYTES, next_batch
from agents.causes import AGENT_STOPPED
from agents.client import ServerClient
from agents.errors import JournalError, RejectedError, UnknownAgentError, UnreachableError
from agents.identity import Credentials
from agents.lease import Lease, boot_clock_s
from agents.link_probe_runner import LinkTests
from agents.processes import Clock, Log, ProcessTable
from agents.protocol import Heartbeat, HeartbeatReply, JoinRequest, NodeIdentity, NodeOffer
from agents.reconcile import reconcile
from agents.state import AgentState

LOOK_EVERY_S = 0.2
REJECTED_RETRY_S = 30.0
MAX_BACKOFF_INTERVALS = 5.0
TRIES_A_LEASE = 3.0
"""A server that is back is found before the lease runs out."""
MIN_INTERVAL_S = 0.05
STOP_PATIENCE_S = 5.0
"""Beyond the longest grace, for workers to be gone when the agent ends with them."""


class SystemClock:
    """The machine's clocks."""

    def epoch_s(self) -> float:
        return time.time()

    def boot_s(self) -> float:
        return boot_clock_s()


@dataclass(frozen=True, slots=True)
class Identity:
    """Who this agent is and what it offers."""

    agent_id: str
    boot_id: str
    agent_version: str
    nodes: tuple[NodeOffer, ...]


def phase_of(agent_id: str) -> float:
    """The agent's own part of an interval, in [0, 1): the same always, and spread evenly over all agents."""
    digest = hashlib.sha256(agent_id.encode()).digest()
    return int.from_bytes(digest[:4], "big") / 2**32


class Backoff:
    """How long to wait before the next try: doubling with every failure, never beyond a few intervals or a part of the
    lease.

    A random part keeps the agents of a region from coming back to a restarted server all at once.
    """

    def __init__(self, dice: random.Random) -> None:
        self._failures = 0
        self._dice = dice

    def reset(self) -> None:
        """After a success."""
        self._failures = 0

    def next_s(self, interval_s: float, lease_s: float) -> float:
        """The wait after one more failure."""
        self._failures += 1
        wait_s = interval_s * min(MAX_BACKOFF_INTERVALS, 2.0 ** (self._failures - 1))
        wait_s = min(wait_s, max(interval_s, lease_s / TRIES_A_LEASE))
        return wait_s * self._dice.uniform(0.75, 1.0)


class Agent:
    """Everything that one agent process does."""

    def __init__(
        self,
        identity: Identity,
        client: ServerClient,
        state: AgentState,
        table: ProcessTable,
        lease: Lease,
        slots: dict[str, int],
        clock: Clock,
        log: Log,
        dice: random.Random,
        credentials: Credentials | None = None,
        links: LinkTests | None = None,
    ) -> None:
        self._credentials = credentials
        self._links = links
        self._identity = identity
        self._client = client
        self._state = state
        self._table = table
        self._lease = lease
        self._slots = slots
        self._clock = clock
        self._log = log
        self._backoff = Backoff(dice)
        self._interval_s = 2.0
        self._lease_s = math.inf
        self._phase = phase_of(identity.agent_id)
        self._in_phase = False
        self._batch_bytes = BATCH_BYTES
        self._joined = False
        self._next_call_s = 0.0
        self._lease_told = True

    @property
    def next_call_s(self) -> float:
        """When it speaks to the server next, on the clock since boot, if nothing happens before."""
        return self._next_call_s

    def run(self, ending: threading.Event) -> None:
        """Until `ending` is set. Workers go on: the next agent in the same folder adopts them."""
        for process in self._table.alive:
            self._log.info("adopted a worker", key=process.key, state=str(process.state))
        while not ending.is_set():
            self.step()
            ending.wait(LOOK_EVERY_S)
        self._measure_nothing()

    def step(self) -> None:
        """One pass: look at the processes, then speak to the server if it is time to."""
        try:
            news = self._links is not None and bool(self._links.reports()) and self._joined
            if self._table.look() or news:
                self._next_call_s = min(self._next_call_s, self._clock.boot_s())
            self._check_lease()
            if self._clock.boot_s() >= self._next_call_s:
                self._call()
        except JournalError as error:
            # Nothing that was not written has been done: it is tried again as a whole.
            self._log.error("the journal cannot be written", detail=str(error))
            self._next_call_s = self._clock.boot_s() + self._interval_s

    def stop_workers(self) -> None:
        """Stops all workers, waits until they are gone (bounded by their grace), and tells the server so."""
        alive = self._table.alive
        patience_s = max((process.grace_s for process in alive), default=0.0) + STOP_PATIENCE_S
        deadline_s = self._clock.boot_s() + patience_s
        for process in alive:
            if process.stop_cause is None:
                self._table.stop(process.key, AGENT_STOPPED)
        while self._table.alive and self._clock.boot_s() < deadline_s:
            self._table.look()
            time.sleep(LOOK_EVERY_S / 4)
        try:
            # What the server still wants is no longer for this agent to start.
            while self._joined and self._heartbeat()[1] and self._clock.boot_s() < deadline_s:
                continue
        except (UnreachableError, RejectedError) as error:
            self._log.warning("the server could not be told of the end", detail=str(error))

    def _call(self) -> None:
        """Joins or beats, and decides when the next call is due."""
        try:
            if not self._joined:
                self._join()
            reply, more = self._heartbeat()
            more = self._obey(reply) or more
        except UnknownAgentError as error:
            self._joined = self._in_phase = False
            self._measure_nothing()
            self._log.warning("joining again", detail=str(error))
            wait_s = self._backoff.next_s(self._interval_s, self._lease_s)
        except UnreachableError as error:
            self._in_phase = False
            self._measure_nothing()
            wait_s = max(
                self._backoff.next_s(self._interval_s, self._lease_s),
                min(error.retry_after_s or 0.0, REJECTED_RETRY_S),
            )
            self._log.warning(
                "the server cannot be reached",
                detail=str(error),
                retry_in_s=round(wait_s, 1),
                lease_left_s=round(self._lease.remaining_s(self._clock.boot_s()), 1),
            )
        except RejectedError as error:
            self._measure_nothing()
            if error.status == 401:
                self._show_the_other()
            if error.status == 413:
                self._batch_bytes = max(1, self._batch_bytes // 2)
            wait_s = self._interval_s if error.status == 413 else max(REJECTED_RETRY_S, self._interval_s)
            self._log.error("the server refuses this agent", detail=str(error), retry_in_s=round(wait_s, 1))
        else:
            self._backoff.reset()
            wait_s = MIN_INTERVAL_S if more else self._next_wait_s()
        self._next_call_s = self._clock.boot_s() + wait_s

    def _join(self) -> None:
        reply = self._client.join(
            JoinRequest(
                agent_id=self._identity.agent_id,
                nodes=list(self._identity.nodes),
                agent_version=self._identity.agent_version,
                clock_s=self._clock.epoch_s(),
                identity=self._credentials is not None and self._credentials.wants_identity,
            )
        )
        self._keep(reply.identity)
        self._joined = True
        self._pace(reply.heartbeat_interval_s, reply.lease_s)
        self._log.info(
            "joined",
            url=self._client.url,
            agent=self._identity.agent_id,
            nodes=[node.node_id for node in self._identity.nodes],
            lease_s=reply.lease_s,
        )

    def _heartbeat(self) -> tuple[HeartbeatReply, bool]:
        """One round trip: what should run, and whether reports are still waiting."""
        batch = next_batch(self._state.unsent, self._batch_bytes)
        measured = [] if self._links is None else self._links.reports()
        sent_at_s = self._clock.boot_s()
        reply = self._client.heartbeat(
            Heartbeat(
                agent_id=self._identity.agent_id,
                boot_id=self._identity.boot_id,
                clock_s=self._clock.epoch_s(),
                processes=self._table.reports(batch.waiting_keys),
                reports=list(batch.reports),
                link_tests=measured or None,
            )
        )
        if self._links is not None:
            self._links.heard(measured)
        self._pace(reply.heartbeat_interval_s, reply.lease_s)
        try:
            self._lease.renew(sent_at_s, reply.lease_s)
        except OSError as error:
            raise JournalError(f"the lease file: {error}") from error
        self._keep(reply.identity)
        self._state.confirm(reply.reports_stored)
        self._table.forget(reply.forget)
        return reply, bool(batch.waiting_keys)

    def _pace(self, interval_s: float, lease_s: float) -> None:
        """As the server wants it from now on."""
        interval_s = max(MIN_INTERVAL_S, interval_s)
        if interval_s != self._interval_s:
            self._in_phase = False
        self._interval_s, self._lease_s = interval_s, lease_s

    def _next_wait_s(self) -> float:
        if self._in_phase:
            return self._interval_s
        self._in_phase = True
        return max(MIN_INTERVAL_S, self._phase * self._interval_s)

    def _keep(self, identity: NodeIdentity | None) -> None:
        if identity is None or self._credentials is None:
            return
        try:
            self._credentials.keep(identity)
        except OSError as error:
            raise JournalError(f"the identity file: {error}") from error
        self._client.show(self._credentials.token)

    def _show_the_other(self) -> None:
        """An identity that has ended: what the agent was given may let it join anew, and the other way round."""
        if self._credentials is not None and self._credentials.refused():
            self._joined = False
            self._client.show(self._credentials.token)

    def _obey(self, reply: HeartbeatReply) -> bool:
        """True if starts are left to do. They come again with the next answer: many that are slow must not use up the
        lease of all the workers here."""
        # An answer that took longer than the lease gives no right to anything.
        now_s = self._clock.boot_s()
        valid = self._lease.valid(now_s)
        self._lease_told = not valid
        if self._links is not None:  # before anything starts: it may need what a measurement takes
            self._links.obey(reply.link_tests or () if valid else ())
        actions = reconcile(
            reply.desired, self._state.processes, self._state.tombstones, self._slots, lease_valid=valid
        )
        return self._table.carry_out(actions, now_s + self._interval_s)

    def _measure_nothing(self) -> None:
        """Nobody says that it is wanted. What was found out is dropped as well: an older server would refuse it."""
        if self._links is not None:
            self._links.obey(())
            self._links.heard(self._links.reports())

    def _check_lease(self) -> None:
        if self._lease.valid(self._clock.boot_s()):
            return
        if not self._lease_told:
            self._lease_told = True
            self._log.error("the lease has run out: stopping all workers", workers=len(self._table.alive))
        actions = reconcile((), self._state.processes, self._state.tombstones, self._slots, lease_valid=False)
        self._table.carry_out(actions)
