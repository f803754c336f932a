"""Nodes: looked at, taken out of planning, and brought back."""

from __future__ import annotations

import re
from dataclasses import dataclass

from scheduler.job import Elasticity, JobState
from service import topics
from service.access import Principal
from service.capacity import used_by_node
from service.db.agent_queries import live_processes_on
from service.db.records import AgentRecord, NodeRecord
from service.db.repositories import cluster, jobs
from service.db.scope import EVERYTHING
from service.db.session import Session
from service.errors import AmbiguousIdError, NotFoundError
from service.lifecycle import NodeState, move_node
from service.progress import stop
from service.regions import check_version
from service.services import Services

DRAINED = "drained"
"""Why a gang is stopped on a node that is to be emptied: no failure, and no retry is spent on it."""

_ID = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")


@dataclass(frozen=True, slots=True)
class NodeView:
    """A node, who speaks for it, and what is used of it."""

    node: NodeRecord
    agent: AgentRecord
    used_gpus: int
    now_s: float

    @property
    def heartbeat_age_s(self) -> float:
        return max(0.0, self.now_s - self.agent.heartbeat_at_s)

    @property
    def measured_age_s(self) -> float:
        return max(0.0, self.now_s - self.node.measured_at_s)


@dataclass(frozen=True, slots=True)
class Drained:
    """A drained node, the jobs that restart elsewhere, and those that may not be stopped."""

    view: NodeView
    restarting: tuple[str, ...]
    staying: tuple[str, ...]


async def list_all(services: Services) -> list[NodeView]:
    """By id."""
    now_s = services.clock.now()

    def work(session: Session) -> list[NodeView]:
        agents = {agent.agent_id: agent for agent in cluster.agents(session)}
        used = used_by_node(session)
        return [
            NodeView(node, agents[node.agent_id], used[node.node_id], now_s)
            for node in cluster.nodes(session)
        ]

    return await services.db.read(work)


async def show(services: Services, node_id: str) -> NodeView:
    """By its id or a prefix that fits no other. Raises NotFoundError, AmbiguousIdError."""
    now_s = services.clock.now()
    return await services.db.read(lambda session: view_node(session, find(session, node_id), now_s))


async def cordon(services: Services, principal: Principal, node_id: str, version: int | None) -> NodeView:
    """Nothing new is placed on the node from now on; what runs goes on. Again changes nothing."""
    return await _move(services, principal, node_id, version, NodeState.CORDONED)


async def uncordon(services: Services, principal: Principal, node_id: str, version: int | None) -> NodeView:
    """The node takes jobs again. Again changes nothing; one that is lost comes back with its heartbeat."""
    return await _move(services, principal, node_id, version, NodeState.READY)


async def drain(services: Services, principal: Principal, node_id: str, version: int | None) -> Drained:
    """Cordons the node, and stops the jobs on it that may be stopped: they go on elsewhere from their checkpoint.

    A job with elasticity `none` stays until it ends. Again stops what has come to run since.
    """
    now_s = services.clock.now()

    def work(session: Session) -> Drained:
        node = find(session, node_id)
        check_version(f"node {node.node_id}", node.version, version)
        moment = principal.moment(now_s)
        if node.state == NodeState.READY:
            node = move_node(session, node, NodeState.CORDONED, moment)
        restarting, staying = [], []
        for job_id in sorted({process.job_id for process in live_processes_on(session, [node.node_id])}):
            job = jobs.get(session, EVERYTHING, job_id)
            if job is None or job.state == JobState.STOPPING:
                continue
            if job.spec["elasticity"] == Elasticity.NONE:
                staying.append(job_id)
                continue
            stop(session, job, DRAINED, moment)
            restarting.append(job_id)
        return Drained(view_node(session, node, now_s), tuple(restarting), tuple(staying))

    drained = await services.db.run(work)
    await services.bus.publish(topics.PLANNING)
    return drained


def find(session: Session, text: str) -> NodeRecord:
    """The one node with that id or id prefix. Raises NotFoundError, AmbiguousIdError."""
    if not _ID.fullmatch(text):
        raise NotFoundError("there is no node with such an id: ids are made of a-z, 0-9, '.', '_' and '-'")
    exact = cluster.node(session, text)
    if exact is not None:
        return exact
    found = cluster.nodes_with_prefix(session, text, 5)
    if not found:
        raise NotFoundError(f"there is no node {text}: `bace nodes` shows those there are")
    if len(found) > 1:
        ids = [node.node_id for node in found]
        raise AmbiguousIdError(f"more than one node begins with {text}: {', '.join(ids)} …", candidates=ids)
    return found[0]


async def _move(
    services: Services, principal: Principal, node_id: str, version: int | None, target: NodeState
) -> NodeView:
    now_s = services.clock.now()

    def work(session: Session) -> NodeView:
        node = find(session, node_id)
        check_version(f"node {node.node_id}", node.version, version)
        came_back_itself = node.state == NodeState.LOST and target is NodeState.READY
        if node.state != target and not came_back_itself:
            node = move_node(session, node, target, principal.moment(now_s))
        return view_node(session, node, now_s)

    view = await services.db.run(work)
    await services.bus.publish(topics.PLANNING)
    return view


def view_node(session: Session, node: NodeRecord, now_s: float) -> NodeView:
    """The node with its agent and what is used of it."""
    agent = cluster.agent(session, node.agent_id)
    if agent is None:
        raise NotFoundError(f"the agent {node.agent_id} of node {node.node_id} is not known")
    return NodeView(node, agent, used_by_node(session)[node.node_id], now_s)
