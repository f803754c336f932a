"""Who is still there: a node whose agent has been silent for too long is lost, and what ran on it has ended.

By the server's clock alone. A node is declared lost only after the agent must have stopped its workers by itself
(`settings` checks the inequality of the two), so two generations of a stage never run at once. Silence counts from
when this instance could have heard: after a change of leader, a restart or a pause every node has a full grace.
"""

from __future__ import annotations

from service import progress
from service.control.leader import Leadership
from service.db import agent_queries, control_queries
from service.db.records import NodeRecord
from service.db.session import Session
from service.lifecycle import (
    ENDED_PROCESS_STATES,
    LOST,
    Moment,
    NodeState,
    move_node,
    move_process,
)
from service.pace import lost_after_s
from service.progress import Rules
from service.services import Services

ACTOR = "liveness"


class Liveness:
    """Sweeps the nodes; keeps from when on silence counts."""

    def __init__(self, services: Services, leadership: Leadership) -> None:
        self._services = services
        self._leadership = leadership
        self._counts_from_s = leadership.grace_from_s
        self._swept_at_s = leadership.grace_from_s

    async def sweep(self) -> int:
        """Declare what is lost; how many nodes. Raises FencedError where another instance leads."""
        services, settings = self._services, self._services.settings
        now_s = services.clock.now()
        if now_s - self._swept_at_s > settings.lease_s:
            # This process or the database was away, or the clock jumped: heartbeats could not be heard meanwhile.
            self._counts_from_s = now_s
        heard_before_s = await services.db.read(lambda session: self._heard_before_s(session, now_s))
        self._swept_at_s = now_s
        if heard_before_s is None:
            return 0
        moment, rules = Moment(now_s, ACTOR), services.rules()
        return await self._leadership.write(
            lambda session: lose_silent_nodes(session, heard_before_s, moment, rules)
        )

    def _heard_before_s(self, session: Session, now_s: float) -> float | None:
        """Who was not heard since then is lost; None: nobody."""
        services, settings = self._services, self._services.settings
        services.pace.look(session, settings, now_s)
        patience_s = lost_after_s(settings, services.pace.interval_s(settings))
        is_grace = now_s - self._counts_from_s < patience_s
        return None if is_grace or not _to_lose(session, now_s - patience_s) else now_s - patience_s


def lose_silent_nodes(session: Session, heard_before_s: float, moment: Moment, rules: Rules) -> int:
    """The transaction: nodes are lost, their processes have ended, and their jobs move on."""
    nodes = _to_lose(session, heard_before_s)
    jobs = set()
    for node in nodes:
        if node.state == NodeState.READY:  # one that is cordoned stays so, for when it is back
            move_node(session, node, NodeState.LOST, moment)
        for process in agent_queries.live_processes_on(session, [node.node_id]):
            if process.state not in ENDED_PROCESS_STATES:
                move_process(session, process, LOST, moment, data={"cause": "node-lost"})
                jobs.add(process.job_id)
    for job_id in sorted(jobs):
        progress.advance(session, job_id, moment, rules)
    return len(nodes)


def _to_lose(session: Session, heard_before_s: float) -> list[NodeRecord]:
    """Silent nodes of which something is still believed: that they are ready, or that something runs there."""
    return [
        node
        for node in control_queries.silent_nodes(session, heard_before_s)
        if node.state == NodeState.READY
        or any(
            process.state not in ENDED_PROCESS_STATES
            for process in agent_queries.live_processes_on(session, [node.node_id])
        )
    ]
