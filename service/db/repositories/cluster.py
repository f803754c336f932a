"""What there is to run on: regions, GPU types, pools, agents, nodes, links."""

from __future__ import annotations

from typing import Any

from sqlalchemy import bindparam, update

from service.db.reader import Reader
from service.db.records import (
    AgentRecord,
    GpuTypeRecord,
    LinkRecord,
    NodeRecord,
    PoolRecord,
    RegionRecord,
)
from service.db.session import Session
from service.db.tables import AgentRow, GpuTypeRow, LinkRow, NodeRow, PoolRow, RegionRow

_regions = Reader(RegionRecord, RegionRow)
_gpu_types = Reader(GpuTypeRecord, GpuTypeRow)
_pools = Reader(PoolRecord, PoolRow)
_agents = Reader(AgentRecord, AgentRow)
_nodes = Reader(NodeRecord, NodeRow)
_links = Reader(LinkRecord, LinkRow)
# Every snapshot reads all of these.
_ALL_REGIONS = _regions.select().order_by(RegionRow.region)
_ALL_GPU_TYPES = _gpu_types.select().order_by(GpuTypeRow.gpu_type)
_ALL_POOLS = _pools.select().order_by(PoolRow.region, PoolRow.gpu_type)
_ALL_NODES = _nodes.select().order_by(NodeRow.node_id)
_NODES_OF_AGENT = _nodes.select(NodeRow.agent_id == bindparam("agent")).order_by(NodeRow.node_id)
_ALL_LINKS = _links.select().order_by(LinkRow.src, LinkRow.dst)


def regions(session: Session) -> list[RegionRecord]:
    return _regions.fetch(session, _ALL_REGIONS, {})


def region(session: Session, name: str) -> RegionRecord | None:
    return _regions.get(session, name)


def add_region(session: Session, record: RegionRecord) -> None:
    _regions.add(session, record)


def change_region(session: Session, record: RegionRecord, **values: Any) -> bool:
    return _regions.change(session, record, **values)


def gpu_types(session: Session) -> list[GpuTypeRecord]:
    return _gpu_types.fetch(session, _ALL_GPU_TYPES, {})


def gpu_type(session: Session, name: str) -> GpuTypeRecord | None:
    return _gpu_types.get(session, name)


def add_gpu_type(session: Session, record: GpuTypeRecord) -> None:
    _gpu_types.add(session, record)


def change_gpu_type(session: Session, record: GpuTypeRecord, **values: Any) -> bool:
    return _gpu_types.change(session, record, **values)


def pools(session: Session) -> list[PoolRecord]:
    return _pools.fetch(session, _ALL_POOLS, {})


def pool(session: Session, region_name: str, gpu_type_name: str) -> PoolRecord | None:
    return _pools.get(session, region_name, gpu_type_name)


def add_pool(session: Session, record: PoolRecord) -> None:
    _pools.add(session, record)


def change_pool(session: Session, record: PoolRecord, **values: Any) -> bool:
    return _pools.change(session, record, **values)


def agents(session: Session) -> list[AgentRecord]:
    return _agents.all(session, order_by=[AgentRow.agent_id])


def agent(session: Session, agent_id: str) -> AgentRecord | None:
    return _agents.get(session, agent_id)


def add_agent(session: Session, record: AgentRecord) -> None:
    _agents.add(session, record)


def change_agent(session: Session, agent_id: str, **values: Any) -> None:
    session.execute(update(AgentRow).where(AgentRow.agent_id == agent_id).values(**values))


def nodes(session: Session) -> list[NodeRecord]:
    return _nodes.fetch(session, _ALL_NODES, {})


def nodes_of_agent(session: Session, agent_id: str) -> list[NodeRecord]:
    return _nodes.fetch(session, _NODES_OF_AGENT, {"agent": agent_id})


def node(session: Session, node_id: str) -> NodeRecord | None:
    return _nodes.get(session, node_id)


def nodes_with_prefix(session: Session, prefix: str, limit: int) -> list[NodeRecord]:
    """Nodes whose id starts with `prefix` ([a-z0-9._-] only)."""
    return _nodes.all(
        session,
        NodeRow.node_id >= prefix,
        NodeRow.node_id < prefix + "\x7f",
        order_by=[NodeRow.node_id],
        limit=limit,
    )


def add_node(session: Session, record: NodeRecord) -> None:
    _nodes.add(session, record)


def change_node(session: Session, record: NodeRecord, **values: Any) -> bool:
    """Sets `values` if the row is still as `record` has it."""
    return _nodes.change(session, record, **values)


def links(session: Session) -> list[LinkRecord]:
    return _links.fetch(session, _ALL_LINKS, {})


def link(session: Session, src: str, dst: str) -> LinkRecord | None:
    return _links.get(session, src, dst)


def add_link(session: Session, record: LinkRecord) -> None:
    _links.add(session, record)


def change_link(session: Session, record: LinkRecord, **values: Any) -> bool:
    return _links.change(session, record, **values)
